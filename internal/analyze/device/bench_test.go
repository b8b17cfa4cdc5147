package device

import (
	"net/netip"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/decode"
	"github.com/waymark-net/waymark/internal/analyze/device/devicetest"
)

// BenchmarkTake counts records of 16,384 flows, in datagrams of 60; an operation is a record.
func BenchmarkTake(b *testing.B) {
	const each, flows = 60, 16384
	now := time.Now()
	e := newExporter("core1", nil, &share{most: mostOfAddress}, netip.MustParseAddr("192.0.2.1"), 0, 0, now, nil)
	var datagrams [][]byte
	sequence := uint32(0)
	for i := 0; i < flows; i += each {
		var records devicetest.Buffer
		for n := range each {
			records = records.Bytes(devicetest.Record(uint16(i+n), 5, 500))
		}
		datagrams = append(datagrams, devicetest.IPFIX(0, sequence, devicetest.Set(2, devicetest.Template(256)), devicetest.Set(256, records)))
		sequence += each
	}
	b.ResetTimer()
	for n := 0; n < b.N; n += each {
		i := n / each % len(datagrams)
		if i == 0 {
			e.turn(now)
		}
		h, err := decode.Peek(datagrams[i])
		if err != nil {
			b.Fatal(err)
		}
		e.take(&h, datagrams[i], 2055, now)
	}
}
