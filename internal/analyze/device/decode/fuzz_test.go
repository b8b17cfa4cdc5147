package decode

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/devicetest"
	"github.com/waymark-net/waymark/test/packet"
)

// seeds are right datagrams of each protocol, with templates and options.
func seeds() []devicetest.Buffer {
	frame := packet.Eth().VLAN(5).IPv6("2001:db8::1", "2001:db8::2").HopByHop().TCP(2000, 443).Payload(100).Bytes()
	template := devicetest.Buffer{}.U16(257, 12, 27, 16, 28, 16, 7, 2, 11, 2, 4, 1, 2, 8, 1, 8, 82, 65535, 156, 8, 157, 8, 22, 4, 302, 2)
	record := devicetest.Buffer{}.Bytes(make([]byte, 32)).U16(1, 2).U8(6).U32(0, 5, 0, 500).U8(3, 'a', 'b', 'c').U32(1, 2, 3, 4, 5).U16(1)
	return []devicetest.Buffer{
		devicetest.NetFlow5(9, time.Hour, 100, devicetest.Record5(2, 300, time.Minute, time.Hour), devicetest.Record5(1, 40, 0, 0)),
		devicetest.NetFlow9(1, 2, time.Hour, devicetest.Set(0, devicetest.Template(256)), devicetest.Set(256, devicetest.Record(1, 5, 500)), devicetest.Set(1, devicetest.Buffer{}.U16(300, 4, 8, 1, 4, 34, 4, 35, 1)), devicetest.Set(300, devicetest.Buffer{}.U32(0, 1000).U8(2))),
		devicetest.IPFIX(1, 2, devicetest.Set(2, template), devicetest.Set(257, record), devicetest.Set(3, devicetest.Buffer{}.U16(301, 3, 1, 10, 4, 82, 65535, 305, 4)), devicetest.Set(301, devicetest.Buffer{}.U32(7).U8(3).Bytes([]byte("xe0")).U32(9)), devicetest.Set(258, record)),
		devicetest.SFlow(1, time.Hour, devicetest.Sample(400, 3, 3, 4, 1, frame, len(frame)), devicetest.Sample(400, 3, 3, 4, 2, frame[:60], len(frame))),
	}
}

// accept reads a datagram of anybody twice, as one that comes again may find what the first left.
func accept(s *Session, b []byte) (flows int) {
	g := newGathered()
	for range 2 {
		h, err := Peek(b)
		if err != nil {
			return 0
		}
		s.Decode(&h, devicetest.Exported, g)
	}
	s.Tend(devicetest.Exported.Add(time.Hour), g)
	return len(g.flows)
}

// bound says what a session may not go beyond.
func bound(t *testing.T, s *Session) {
	t.Helper()
	if len(s.templates) > mostTemplates || s.fields > mostFields || s.bytes > mostWaiting+waitingBytes || len(s.waiting) > mostWaiting/waitingBytes+1 || len(s.awaited) > len(s.waiting) || len(s.samplers) > mostSamplers || len(s.drops) > mostTemplates {
		t.Fatalf("%d templates with %d fields, %d waiting with %d bytes, %d samplers, %d sources", len(s.templates), s.fields, len(s.waiting), s.bytes, len(s.samplers), len(s.drops))
	}
}

// Each datagram is read up to where it is cut, and never beyond.
func TestTruncated(t *testing.T) {
	for i, whole := range seeds() {
		full := accept(NewSession(0), whole)
		if full == 0 {
			t.Errorf("datagram %d has no flows", i)
		}
		for n := range whole {
			cut := append(make([]byte, 0, n), whole[:n]...) // nothing is behind it
			if got := accept(NewSession(0), cut); got > full {
				t.Errorf("datagram %d, cut to %d bytes, has %d flows, and %d when it is whole", i, n, got, full)
			}
		}
	}
}

// TestMutations reads thousands of datagrams that are nearly right, in sessions that go on.
func TestMutations(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	all := seeds()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := NewSession(0)
	began := time.Now()
	const n = 30_000
	for i := range n {
		b := append(devicetest.Buffer{}, all[random.IntN(len(all))]...)
		for range random.IntN(6) {
			at := random.IntN(len(b))
			switch random.IntN(4) {
			case 0:
				b[at] ^= 1 << random.IntN(8)
			case 1:
				b[at] = []byte{0, 1, 0x7f, 0x80, 0xff}[random.IntN(5)]
			case 2:
				b = b[:at+1]
			case 3:
				other := all[random.IntN(len(all))]
				b = append(b[:at:at], other[random.IntN(len(other)):]...)
			}
			if len(b) == 0 {
				break
			}
		}
		accept(s, b)
		bound(t, s)
		if i%1000 == 999 {
			s = NewSession(uint32(random.IntN(2)))
		}
	}
	runtime.ReadMemStats(&after)
	t.Logf("%d datagrams in %v, %d bytes allocated for each", n, time.Since(began), (after.TotalAlloc-before.TotalAlloc)/n)
}

func FuzzDecode(f *testing.F) {
	for _, b := range seeds() {
		f.Add([]byte(b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s := NewSession(0)
		g := newGathered()
		for _, known := range append(seeds(), b, b) {
			h, err := Peek(known)
			if err != nil {
				return
			}
			s.Decode(&h, devicetest.Exported, g)
		}
		// Each flow took at least a byte; those of both directions, half of one.
		if len(g.flows) > 4*(len(b)+512) {
			t.Errorf("%d flows of %d bytes", len(g.flows), len(b))
		}
		bound(t, s)
	})
}
