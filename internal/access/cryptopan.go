package access

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"
	"net/netip"
)

// keySize is that of Crypto-PAn: a key of AES, and what the padding is made of.
const keySize = 32

// cryptoPAn replaces addresses so that two of them have as many leading bits in common as before (Xu, Fan, Ammar, Moon:
// Prefix-preserving IP address anonymization, 2002). Each bit is inverted, or not, as a cipher decides from the bits
// in front of it, which is why it can be undone with the same key.
type cryptoPAn struct {
	block cipher.Block
	pad   [aes.BlockSize]byte
}

func newCryptoPAn(key []byte) (*cryptoPAn, error) {
	if len(key) != keySize {
		return nil, fmt.Errorf("a key of %d bytes; it has %d", len(key), keySize)
	}
	block, err := aes.NewCipher(key[:aes.BlockSize])
	if err != nil {
		return nil, err
	}
	p := &cryptoPAn{block: block}
	block.Encrypt(p.pad[:], key[aes.BlockSize:])
	return p, nil
}

// replace changes the first bits of b in place; undo takes that back.
func (p *cryptoPAn) replace(b []byte, bits int, undo bool) {
	in, out := p.pad, [aes.BlockSize]byte{} // the bits in front, then the padding
	for at := range bits {
		p.block.Encrypt(out[:], in[:])
		place, bit := at/8, byte(0x80)>>(at%8)
		before := b[place] & bit
		if out[0]&0x80 != 0 {
			b[place] ^= bit
		}
		known := before
		if undo {
			known = b[place] & bit
		}
		in[place] = in[place]&^bit | known
	}
}

// addr is the replacement of an address. The unspecified one stays: it is nobody's.
func (p *cryptoPAn) addr(a netip.Addr, undo bool) netip.Addr {
	if a.IsUnspecified() {
		return a
	}
	return p.first(a, a.BitLen(), undo)
}

// prefix is the replacement of a prefix: that of all its addresses.
func (p *cryptoPAn) prefix(in netip.Prefix, undo bool) netip.Prefix {
	if in.IsSingleIP() {
		return netip.PrefixFrom(p.addr(in.Addr(), undo), in.Bits())
	}
	return netip.PrefixFrom(p.first(in.Addr(), in.Bits(), undo), in.Bits())
}

func (p *cryptoPAn) first(a netip.Addr, bits int, undo bool) netip.Addr {
	b := a.AsSlice()
	p.replace(b, bits, undo)
	out, _ := netip.AddrFromSlice(b)
	return out.WithZone(a.Zone())
}
