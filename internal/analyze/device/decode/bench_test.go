package decode

import (
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/device/devicetest"
	"github.com/waymark-net/waymark/internal/flow"
)

// nothing takes flows, and keeps none.
type nothing struct{}

func (nothing) Flow(*flow.Delta, uint32, uint32) {}
func (nothing) Interface(uint32, string)         {}
func (nothing) Sampled(float64)                  {}
func (nothing) Count(Reason, uint64)             {}

// BenchmarkRecords decodes full datagrams; an operation is a record.
func BenchmarkRecords(b *testing.B) {
	var records, records5 devicetest.Buffer
	for i := range uint16(60) {
		records = records.Bytes(devicetest.Record(i, 5, 500))
	}
	for range 30 {
		records5 = records5.Bytes(devicetest.Record5(5, 500, time.Minute, time.Minute))
	}
	s := NewSession(0)
	template := devicetest.IPFIX(0, 0, devicetest.Set(2, devicetest.Template(256)))
	head, err := Peek(template)
	if err != nil {
		b.Fatal(err)
	}
	s.Decode(&head, devicetest.Exported, nothing{})
	five := devicetest.NetFlow5(0, time.Hour, 0, devicetest.Record5(5, 500, time.Minute, time.Minute))
	five = append(five[:24:24], records5...)
	five[3] = 30
	for name, c := range map[string]struct {
		datagram []byte
		records  int
	}{"ipfix": {devicetest.IPFIX(0, 0, devicetest.Set(256, records)), 60}, "netflow5": {five, 30}} {
		b.Run(name, func(b *testing.B) {
			for n := 0; n < b.N; n += c.records {
				h, err := Peek(c.datagram)
				if err != nil {
					b.Fatal(err)
				}
				s.Decode(&h, devicetest.Exported, nothing{})
			}
		})
	}
}
