package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/waymark-net/waymark/internal/inband"
)

// pdmFields are the fields of the object pdm, which only marked flows have.
var pdmFields = slices.Concat(
	[]Field{
		pdmCount("sent", "packets marked here, a GSO burst as one", "waymarkPDMSentDeltaCount", func(p *PDM) *uint64 { return &p.Sent }, false),
		pdmCount("received", "packets of the peer whose marks were read and believed, a GSO burst as one", "waymarkPDMReceivedDeltaCount", func(p *PDM) *uint64 { return &p.Received }, false),
		{
			Name: "pdm.lost", Kind: Signed, Unit: "packets", IPFIX: []string{"waymarkPDMLostDeltaCount"},
			Doc:    "packets of the peer that did not come; one that comes after its loss was reported offsets the next loss; absent: none",
			Absent: func(_ *Origin, r *Record) bool { return r.PDM == nil || r.PDM.Lost == 0 },
			Append: func(b []byte, _ *Origin, r *Record) []byte { return strconv.AppendInt(b, r.PDM.Lost, 10) },
			Set: func(s string, _ *Origin, r *Record) (err error) {
				r.marked().Lost, err = strconv.ParseInt(s, 10, 64)
				return err
			},
		},
		pdmCount("reordered", "packets of the peer that came behind later ones; absent: none", "waymarkPDMReorderedDeltaCount", func(p *PDM) *uint64 { return &p.Reordered }, true),
		pdmCount("duplicates", "packets of the peer that arrived more than once; absent: none", "waymarkPDMDuplicateDeltaCount", func(p *PDM) *uint64 { return &p.Duplicates }, true),
		pdmCount("suspicious", "packets with impossible times, or with numbers that are not believed: kept out of the delays; absent: none", "waymarkPDMSuspiciousDeltaCount", func(p *PDM) *uint64 { return &p.Suspicious }, true),
		pdmCount("discarded", "packets in order that do not answer the packet sent last; absent: none", "waymarkPDMDiscardedDeltaCount", func(p *PDM) *uint64 { return &p.Discarded }, true),
	},
	delayFields("server", "delays at the peer, from a request's arrival to its answer", "waymarkPDMServerDelay", func(p *PDM) *Delays { return &p.Server }),
	delayFields("network", "round trips without the time at the peer", "waymarkPDMNetworkDelay", func(p *PDM) *Delays { return &p.Network }),
)

// marked is the record's PDM, made when it has none.
func (r *Record) marked() *PDM {
	if r.PDM == nil {
		r.PDM = &PDM{}
	}
	return r.PDM
}

func pdmCount(name, doc, ipfix string, of func(*PDM) *uint64, absent bool) Field {
	return Field{
		Name: "pdm." + name, Kind: Number, Unit: "packets", Max: maxUint64, Doc: doc, IPFIX: []string{ipfix},
		Absent: func(_ *Origin, r *Record) bool { return r.PDM == nil || absent && *of(r.PDM) == 0 },
		Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, *of(r.PDM)) },
		Set:    func(s string, _ *Origin, r *Record) error { return parseUint(s, of(r.marked())) },
	}
}

// delayFields are the fields of one inner object; a record without such delays
// has none of them.
func delayFields(name, what, ipfix string, of func(*PDM) *Delays) []Field {
	name = "pdm." + name + "."
	absent := func(_ *Origin, r *Record) bool { return r.PDM == nil || of(r.PDM).Count == 0 }
	number := func(key, unit, doc, ipfixEnd string, value func(*Delays) *uint64) Field {
		return Field{
			Name: name + key, Kind: Number, Unit: unit, Max: maxUint64, Doc: doc, IPFIX: []string{ipfix + ipfixEnd}, Absent: absent,
			Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, *value(of(r.PDM))) },
			Set: func(s string, _ *Origin, r *Record) error {
				d := of(r.marked())
				if err := parseUint(s, value(d)); err != nil {
					return err
				}
				return d.counted()
			},
		}
	}
	quantile := func(key, doc, ipfixEnd string, q float64) Field {
		f := Field{
			Name: name + key, Kind: Number, Unit: "ns", Max: maxInt64, Doc: doc + ", within 6 %", Absent: absent,
			Append: func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, uint64(of(r.PDM).Quantile(q))) },
		}
		if ipfixEnd != "" {
			f.IPFIX = []string{ipfix + ipfixEnd}
		}
		return f
	}
	return []Field{
		number("count", "", what+"; absent: none", "DeltaCount", func(d *Delays) *uint64 { return &d.Count }),
		number("sum_ns", "ns", "sum of these", "SumNanoseconds", func(d *Delays) *uint64 { return &d.Sum }),
		number("min_ns", "ns", "the shortest", "MinNanoseconds", func(d *Delays) *uint64 { return &d.Min }),
		number("max_ns", "ns", "the longest", "MaxNanoseconds", func(d *Delays) *uint64 { return &d.Max }),
		quantile("p50_ns", "the median", "MedianNanoseconds", 0.5),
		quantile("p90_ns", "what 90 of 100 do not exceed", "", 0.9),
		quantile("p99_ns", "what 99 of 100 do not exceed", "P99Nanoseconds", 0.99),
		{
			Name: name + "buckets", Kind: Pairs, Absent: absent,
			Doc: fmt.Sprintf("histogram as [index, count], without empty buckets: bucket 0 is below 2^%d ns, then there are %d of equal width to each power of two",
				inband.MinBits, 1<<inband.SubBits),
			Append: func(b []byte, _ *Origin, r *Record) []byte { return appendBuckets(b, of(r.PDM).Buckets) },
			Set: func(s string, _ *Origin, r *Record) error {
				d := of(r.marked())
				if err := d.counted(); err != nil {
					return err
				}
				return parseBuckets(s, &d.Buckets)
			},
		},
	}
}

// counted refuses delays that are not any, which nothing would show.
func (d *Delays) counted() error {
	if d.Count == 0 {
		return errors.New("no delays are recorded: their count is 0 or missing")
	}
	return nil
}

func appendBuckets(b []byte, buckets []DelayBucket) []byte {
	b = append(b, '[')
	for i, bucket := range buckets {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, '['), bucket.Index)
		b = append(appendUint(append(b, ','), bucket.Count), ']')
	}
	return append(b, ']')
}

func parseBuckets(s string, to *[]DelayBucket) error {
	var pairs [][]uint64
	if err := json.Unmarshal([]byte(s), &pairs); err != nil {
		return err
	}
	*to = nil
	next := uint64(0)
	for _, pair := range pairs {
		if len(pair) != 2 || pair[0] < next || pair[0] >= inband.Buckets || pair[1] == 0 {
			return fmt.Errorf("%v: want [index, count], the index below %d and above the one before", pair, inband.Buckets)
		}
		next = pair[0] + 1
		*to = append(*to, DelayBucket{Index: uint8(pair[0]), Count: pair[1]})
	}
	return nil
}

// Range is the least and the most of a number.
func (f *Field) Range() (least int64, most uint64) {
	if f.Kind == Signed {
		return math.MinInt64, math.MaxInt64
	}
	return 0, f.Max
}
