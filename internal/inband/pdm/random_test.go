package pdm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/waymark-net/waymark/internal/datapath/datapathtest"
	"github.com/waymark-net/waymark/test/packet"
	"github.com/waymark-net/waymark/wire/ipv6"
	"github.com/waymark-net/waymark/wire/pdm"
)

// refusals are the reasons that stand for an error of pdm.Insert.
var refusals = []struct {
	err     error
	reasons []string
}{
	{pdm.ErrMarked, []string{"marked"}},
	{pdm.ErrVersion2, []string{"version2"}},
	{pdm.ErrEncrypted, []string{"esp"}},
	{ipv6.ErrAuthenticated, []string{"ah", "fragment"}},
	{ipv6.ErrFragment, []string{"fragment", "ah", "version2", "marked"}},
	{pdm.ErrNeighbor, []string{"neighbor"}},
	{ipv6.ErrJumbogram, []string{"jumbogram"}},
	{ipv6.ErrNoSpace, []string{"full_header"}},
	{ipv6.ErrTooLong, []string{"too_long", "mtu"}},
	{ipv6.ErrMalformed, []string{"malformed", "chain"}},
	{pdm.ErrOptionLength, []string{"malformed"}},
	{pdm.ErrTwice, []string{"malformed", "fragment"}},
	{ipv6.ErrTooComplex, []string{"chain", "malformed"}},
	{ipv6.ErrTruncated, []string{"malformed"}},
}

// own are reasons of the kernel program alone: it marks less than pdm.Insert.
var own = []string{
	"chain", "deep", "mtu", "no_space", "address", "neighbor", "fragment",
	"frame", "icmp_error", "unproven", "resent", "fallback", "burst_tunnel",
}

// judgeMark says what is wrong with what became of a frame.
func judgeMark(frame, out []byte, why map[string]uint64) error {
	if len(why) > 1 {
		return fmt.Errorf("counted more than once: %v", why)
	}
	reason := ""
	for reason = range why {
	}
	if bytes.Equal(frame, out) {
		if reason == "" {
			return nil // not named, or not for the flow probe to read
		}
		_, err := pdm.Insert(packetOf(frame), pdm.Option{})
		for _, r := range refusals {
			if errors.Is(err, r.err) && !slices.Contains(r.reasons, reason) {
				if slices.Contains(own, reason) {
					return nil
				}
				return fmt.Errorf("counted as %s, but the reference says %w", reason, err)
			}
		}
		if err == nil && !slices.Contains(own, reason) {
			return fmt.Errorf("counted as %s, but the reference marks it", reason)
		}
		return nil
	}
	if reason != "" {
		return fmt.Errorf("marked, but counted as %s", reason)
	}
	link := len(frame) - len(packetOf(frame))
	o, err := pdm.Find(out[link:])
	if err != nil {
		return fmt.Errorf("what came out cannot be read: %w", err)
	}
	want, err := pdm.Insert(frame[link:], o)
	if err != nil {
		return fmt.Errorf("marked what the reference refuses: %w", err)
	}
	if !bytes.Equal(out[link:], want) || !bytes.Equal(out[:link], frame[:link]) {
		return fmt.Errorf("not what the reference makes:\n got %x\nwant %x", out[link:], want)
	}
	return nil
}

// packetOf is the IP packet in a frame.
func packetOf(frame []byte) []byte {
	at := etherLen
	for range 2 {
		if len(frame) >= at+4 && (binary.BigEndian.Uint16(frame[at-2:]) == packet.TypeVLAN || binary.BigEndian.Uint16(frame[at-2:]) == packet.TypeQinQ) {
			at += 4
		}
	}
	return frame[min(at, len(frame)):]
}

// judge runs a frame out, out again, and in at a host that strips.
func judge(t testing.TB, h, peer *pdmHost, frame []byte) error {
	t.Helper()
	out, verdict, err := h.runHere("test_egress", packet.Frame{Data: frame})
	if err != nil || verdict != -1 {
		return fmt.Errorf("egress: verdict %d, %w", verdict, err)
	}
	if err := judgeMark(frame, out, h.why(t)); err != nil {
		return err
	}
	marked := !bytes.Equal(out, frame)
	again, verdict, err := h.runHere("test_egress", packet.Frame{Data: out})
	if err != nil || verdict != -1 {
		return fmt.Errorf("egress again: verdict %d, %w", verdict, err)
	}
	if !bytes.Equal(again, out) {
		return fmt.Errorf("marked twice:\n%x", again)
	}
	h.why(t)
	in, verdict, err := peer.runHere("test_ingress", packet.Frame{Data: out})
	if err != nil || verdict != -1 {
		return fmt.Errorf("ingress: verdict %d, %w", verdict, err)
	}
	why := peer.why(t)
	if marked && !bytes.Equal(in, frame) {
		return fmt.Errorf("what was marked is not given back: %v\n got %x\nwant %x", why, in, frame)
	}
	if !marked && !bytes.Equal(in, frame) {
		return judgeStrip(frame, in)
	}
	return nil
}

// judgeStrip: what came with an option of its own loses that and nothing else.
func judgeStrip(frame, in []byte) error {
	link := len(frame) - len(packetOf(frame))
	want, _, err := pdm.Remove(frame[link:])
	if err != nil {
		return fmt.Errorf("stripped what the reference refuses: %w\n%x\n%x", err, frame, in)
	}
	if !bytes.Equal(in[link:], want) {
		return fmt.Errorf("stripped:\nfrom %x\n got %x\nwant %x", frame[link:], in[link:], want)
	}
	return nil
}

func pdmPair(t testing.TB) (h, peer *pdmHost) {
	strip := *marking()
	strip.Strip = true
	return newPDMHost(t, *marking()), newPDMHost(t, strip)
}

// Every chain of headers, cut at every byte.
func TestMarkTruncated(t *testing.T) {
	h, peer := pdmPair(t)
	err := h.veth.Do(func() error {
		peer.ifindex = h.ifindex
		for _, c := range chains() {
			frame := c.frame.Bytes()
			// The transport header and a few bytes more: the rest is payload.
			for n := etherLen + 40; n < len(frame) && n < 800; n++ {
				if err := judge(t, h, peer, frame[:n:n]); err != nil {
					return fmt.Errorf("%s, cut at %d: %w", c.name, n, err)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Random packets, right and wrong.
func TestMarkRandom(t *testing.T) {
	h, peer := pdmPair(t)
	peer.ifindex = h.ifindex
	marked := 0
	err := h.veth.Do(func() error {
		rapid.Check(t, func(r *rapid.T) {
			frame := packet.Random().Draw(r, "frame")
			if datapathtest.Runnable(packet.Frame{Data: frame}) != "" {
				return
			}
			if err := judge(t, h, peer, frame); err != nil {
				r.Fatal(err)
			}
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.pdm.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if marked = int(s.Marked); marked == 0 {
		t.Error("not one packet was marked: the test says nothing")
	}
}

func FuzzMark(f *testing.F) {
	h, peer := pdmPair(f)
	peer.ifindex = h.ifindex
	for _, c := range chains() {
		f.Add(c.frame.Bytes())
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if datapathtest.Runnable(packet.Frame{Data: frame}) != "" || len(frame) > 3000 {
			t.Skip("a test run does not take it")
		}
		if err := h.veth.Do(func() error { return judge(t, h, peer, frame) }); err != nil {
			t.Error(err)
		}
	})
}
