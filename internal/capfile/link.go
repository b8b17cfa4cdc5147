package capfile

// LinkType is what the frames of an interface begin with: a number that both formats share, and that the pcap developers assign.
type LinkType uint16

// Those that a reader here knows.
const (
	LinkNull        LinkType = 0 // BSD's loopback: the address family in 4 bytes
	LinkEthernet    LinkType = 1
	LinkPPP         LinkType = 9
	LinkRawLinux    LinkType = 12 // as LinkRaw, in old files
	LinkRawOpenBSD  LinkType = 14
	LinkRaw         LinkType = 101 // an IP header of either version
	LinkLoop        LinkType = 108 // as LinkNull, of OpenBSD
	LinkLinuxCooked LinkType = 113
	LinkIPv4        LinkType = 228
	LinkIPv6        LinkType = 229
	LinkCookedV2    LinkType = 276
)

// IP reports whether frames begin with an IP header.
func (l LinkType) IP() bool {
	switch l {
	case LinkRaw, LinkRawLinux, LinkRawOpenBSD, LinkIPv4, LinkIPv6:
		return true
	}
	return false
}
