package flow

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/waymark-net/waymark/internal/inband"
)

// pdmFields are the fields of the object pdm, which only marked flows have.
var pdmFields = slices.Concat(
	pdmCounterFields,
	delayFields("server", "server delay", "at the peer, from a request's arrival to its answer", "Server", 16, func(p *PDM) *Delays { return &p.Server }),
	delayFields("network", "network delay", "a round trip without the time at the peer", "Network", 22, func(p *PDM) *Delays { return &p.Network }),
)

// pdmCounterFields are the sums.
var pdmCounterFields = []Field{
	pdmCounter(9, "Sent", Field{Name: "pdm.sent", Doc: "packets marked here, a GSO burst as one"},
		func(p *PDM) *uint64 { return &p.Sent }),
	pdmCounter(10, "Received", Field{Name: "pdm.received", Doc: "packets of the peer whose marks were read and believed, a GSO burst as one"},
		func(p *PDM) *uint64 { return &p.Received }),
	lostField(),
	sometimes(pdmCounter(12, "Reordered", Field{Name: "pdm.reordered", Title: "REORD", Doc: "packets of the peer that came behind later ones", Aliases: []string{"reordered"}},
		func(p *PDM) *uint64 { return &p.Reordered })),
	sometimes(pdmCounter(13, "Duplicate", Field{Name: "pdm.duplicates", Title: "DUP", Doc: "packets of the peer that arrived more than once", Aliases: []string{"duplicates"}},
		func(p *PDM) *uint64 { return &p.Duplicates })),
	sometimes(pdmCounter(14, "Suspicious", Field{
		Name: "pdm.suspicious", Title: "SUSP", Doc: "packets with impossible times, or with numbers that are not believed: kept out of the delays", Aliases: []string{"suspicious"},
	}, func(p *PDM) *uint64 { return &p.Suspicious })),
	sometimes(pdmCounter(15, "Discarded", Field{Name: "pdm.discarded", Doc: "packets in order that do not answer the packet sent last"},
		func(p *PDM) *uint64 { return &p.Discarded })),
}

// PDMCounters are where the unsigned sums lie.
var PDMCounters = func() (list []func(*PDM) *uint64) {
	for i := range pdmCounterFields {
		if of := pdmCounterFields[i].ofPDM; of != nil {
			list = append(list, of)
		}
	}
	return list
}()

// marked is the record's PDM, made when it has none.
func (r *Record) marked() *PDM {
	if r.PDM == nil {
		r.PDM = &PDM{}
	}
	return r.PDM
}

func unmarked(r *Record) bool { return r.PDM == nil }

// pdmSum is what the sums have in common: element, unit and merge.
func pdmSum(id uint16, element, dataType string, f Field) Field {
	f = missing(f, unmarked)
	f.Unit, f.Merge = "packets", MergeSum
	f.IPFIX = []Element{own(id, "waymarkPDM"+element+"DeltaCount", dataType, "deltaCounter", f.Doc)}
	return f
}

func pdmCounter(id uint16, element string, f Field, of func(*PDM) *uint64) Field {
	f = pdmSum(id, element, "unsigned64", f)
	f.ofPDM = of
	f.Kind, f.Max = Number, maxUint64
	f.Uint = func(r *Record) uint64 {
		if r.PDM == nil {
			return 0
		}
		return *of(r.PDM)
	}
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, *of(r.PDM)) }
	f.Set = func(s string, _ *Origin, r *Record) error { return parseUint(s, of(r.marked())) }
	return f
}

// sometimes says that a sum that is 0 is absent.
func sometimes(f Field) Field {
	f.Doc += "; absent: none"
	return absentZero(f)
}

// lostField is signed: one that comes after its loss was reported offsets the next.
func lostField() Field {
	f := pdmSum(11, "Lost", "signed64", Field{
		Name: "pdm.lost", Kind: Signed, Aliases: []string{"lost"},
		Doc: "packets of the peer that did not come; one that comes after its loss was reported offsets the next loss",
	})
	f.Uint = func(r *Record) uint64 {
		if r.PDM == nil {
			return 0
		}
		return uint64(r.PDM.Lost)
	}
	f.Append = func(b []byte, _ *Origin, r *Record) []byte { return strconv.AppendInt(b, r.PDM.Lost, 10) }
	f.Set = func(s string, _ *Origin, r *Record) (err error) {
		r.marked().Lost, err = strconv.ParseInt(s, 10, 64)
		return err
	}
	return sometimes(f)
}

// delayFields are the fields of one inner object; a record without such delays
// has none of them. Their elements have consecutive numbers.
func delayFields(name, title, what, element string, id uint16, of func(*PDM) *Delays) []Field {
	none := func(r *Record) bool { return r.PDM == nil || of(r.PDM).Count == 0 }
	// field is what they have in common; number is the element's, −1: there is none.
	field := func(key, unit, doc string, number int, elementEnd, semantics, elementDoc string) Field {
		f := missing(Field{Name: "pdm." + name + "." + key, Kind: Number, Unit: unit, Max: maxInt64, Doc: doc, Merge: MergeDelays}, none)
		switch key {
		case "min_ns", "max_ns", "p90_ns", "p99_ns": // they stand behind the median
			f.Title = strings.ToUpper(strings.TrimSuffix(key, "_ns"))
		}
		if number >= 0 {
			f.IPFIX = []Element{own(id+uint16(number), "waymarkPDM"+element+"Delay"+elementEnd, "unsigned64", semantics, elementDoc)}
		}
		return f
	}
	stored := func(f Field, value func(*Delays) *uint64) Field {
		f.Max = maxUint64
		f.Uint = func(r *Record) uint64 {
			if r.PDM == nil {
				return 0
			}
			return *value(of(r.PDM))
		}
		f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, *value(of(r.PDM))) }
		f.Set = func(s string, _ *Origin, r *Record) error {
			d := of(r.marked())
			if err := parseUint(s, value(d)); err != nil {
				return err
			}
			return d.counted()
		}
		return f
	}
	quantile := func(q float64, f Field, aliases ...string) Field {
		f.Aliases, f.Derived, f.Doc = aliases, true, f.Doc+", within 6 %"
		f.Uint = func(r *Record) uint64 {
			if r.PDM == nil {
				return 0
			}
			return uint64(of(r.PDM).Quantile(q))
		}
		f.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendUint(b, f.Uint(r)) }
		return f
	}
	buckets := field("buckets", "", fmt.Sprintf("histogram of the "+title+"s as [index, count], without empty buckets: bucket 0 is below 2^%d ns, then there are %d of equal width to each power of two",
		inband.MinBits, 1<<inband.SubBits), -1, "", "", "")
	buckets.Kind, buckets.Max = Pairs, 0
	buckets.Append = func(b []byte, _ *Origin, r *Record) []byte { return appendBuckets(b, of(r.PDM).Buckets) }
	buckets.Set = func(s string, _ *Origin, r *Record) error {
		d := of(r.marked())
		if err := d.counted(); err != nil {
			return err
		}
		return parseBuckets(s, &d.Buckets)
	}
	return []Field{
		stored(field("count", "", "number of "+title+"s: "+what+"; absent: none", 0, "DeltaCount", "deltaCounter", "number of delays measured; "+title+": "+what), func(d *Delays) *uint64 { return &d.Count }),
		stored(field("sum_ns", "ns", "sum of the "+title+"s", 1, "SumNanoseconds", "deltaCounter", title+": their sum"), func(d *Delays) *uint64 { return &d.Sum }),
		stored(field("min_ns", "ns", "shortest "+title, 2, "MinNanoseconds", "quantity", title+": the shortest; 0: none was measured"), func(d *Delays) *uint64 { return &d.Min }),
		stored(field("max_ns", "ns", "longest "+title, 3, "MaxNanoseconds", "quantity", title+": the longest"), func(d *Delays) *uint64 { return &d.Max }),
		quantile(0.5, field("p50_ns", "ns", "median of the "+title+"s", 4, "MedianNanoseconds", "quantity", title+": the median, within 6 %"), name),
		quantile(0.9, field("p90_ns", "ns", "what 90 of 100 "+title+"s do not exceed", -1, "", "", ""), name+"_p90"),
		quantile(0.99, field("p99_ns", "ns", "what 99 of 100 "+title+"s do not exceed", 5, "P99Nanoseconds", "quantity", title+": what 99 of 100 do not exceed, within 6 %"), name+"_p99"),
		buckets,
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
