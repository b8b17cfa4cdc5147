package ipv6

import "encoding/binary"

// HeaderSize is the size of the fixed IPv6 header.
const HeaderSize = 40

const (
	payloadLengthAt = 4
	nextHeaderAt    = 6
)

// IANA protocol numbers of extension headers (RFC 7045 section 4), of ESP, at which
// a walk ends, and of no next header.
const (
	HopByHop    = 0
	Routing     = 43
	Fragment    = 44
	ESP         = 50
	Auth        = 51
	NoNext      = 59
	Destination = 60
	Mobility    = 135
	HIP         = 139
	Shim6       = 140
)

const (
	unit          = 8 // extension headers are multiples of it
	extensionSize = 8 // smallest extension header

	// MaxExtensionSize is the size of an extension header whose Hdr Ext Len is 255.
	MaxExtensionSize = 256 * unit
)

// IsExtension reports whether a header with this protocol number is an extension
// header that names the next one. ESP is not: what follows is encrypted.
func IsExtension(proto uint8) bool {
	switch proto {
	case HopByHop, Routing, Fragment, Auth, Destination, Mobility, HIP, Shim6:
		return true
	}
	return false
}

// Extension is what the first eight bytes of an extension header say.
type Extension struct {
	Next uint8 // protocol number of what follows
	Size int   // bytes of the whole header

	// Of a Fragment header (RFC 8200 section 4.5).
	FragmentOffset int // bytes
	MoreFragments  bool
	FragmentID     uint32
}

// ParseExtension reads the start of an extension header of type proto from the
// first eight bytes of b. It fails with [ErrTruncated]; that b holds the whole
// header is for the caller to check.
func ParseExtension(proto uint8, b []byte) (Extension, error) {
	if len(b) < extensionSize {
		return Extension{}, errorAt(len(b), ErrTruncated)
	}
	e := Extension{Next: b[0], Size: (int(b[1]) + 1) * unit}
	switch proto {
	case Auth: // words of 32 bits, minus 2 (RFC 4302 section 2.2)
		e.Size = (int(b[1]) + 2) * 4
	case Fragment: // the second byte is reserved
		e.Size = extensionSize
		word := binary.BigEndian.Uint16(b[2:])
		e.FragmentOffset, e.MoreFragments = int(word&^7), word&1 != 0
		e.FragmentID = binary.BigEndian.Uint32(b[4:])
	}
	return e, nil
}
