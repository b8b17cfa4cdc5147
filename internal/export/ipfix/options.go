package ipfix

import (
	"context"
	"math"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/waymark-net/waymark/internal/flow"
)

// announce sends templates and options when the collector does not know them
// yet, and again at intervals: templates only over UDP, where messages get lost
// (RFC 7011 section 8.4).
func (e *Exporter) announce(ctx context.Context) error {
	now := e.now()
	first := e.announced.IsZero()
	if !first && now.Sub(e.announced) < e.cfg.TemplateInterval {
		if e.tellLoss {
			return e.addTotals(ctx)
		}
		return nil
	}
	if first || e.network == "udp" {
		if err := e.addTemplates(ctx, first); err != nil {
			return err
		}
	}
	if first {
		if err := e.arrive(ctx); err != nil {
			return err
		}
	}
	if err := e.addOptions(ctx); err != nil {
		return err
	}
	if err := e.addTotals(ctx); err != nil {
		return err
	}
	if first {
		if err := e.arrive(ctx); err != nil {
			return err
		}
	}
	e.announced = now
	return nil
}

// arrive sends what waits and gives it time to arrive, or to be refused. The
// templates take several messages, and collectors that read two at once would
// find data before their template.
func (e *Exporter) arrive(ctx context.Context) error {
	if err := e.flush(ctx); err != nil {
		return err
	}
	return e.session.confirm()
}

func (e *Exporter) used(id uint16) bool {
	switch {
	case id < idUnattributed:
		v := id - idFlow
		biflow, marked, dropped := v&variantBiflow != 0, v&variantPDM != 0, v&variantDrop != 0
		return (e.cfg.Biflow || !biflow) && (!marked || v&variantIPv6 != 0 && !biflow) && (!dropped || !biflow)
	}
	return true
}

// addTemplates adds all templates, after what the templates' own elements are.
func (e *Exporter) addTemplates(ctx context.Context, first bool) error {
	if err := e.addTemplate(ctx, idType); err != nil {
		return err
	}
	if first {
		if err := e.arrive(ctx); err != nil {
			return err
		}
	}
	if err := e.addTypes(ctx); err != nil {
		return err
	}
	for id := uint16(idFlow); id < idType; id++ {
		if !e.used(id) {
			continue
		}
		if err := e.addTemplate(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

func (e *Exporter) addTemplate(ctx context.Context, id uint16) error {
	t, k := templates[id], kindTemplates
	if id == idType {
		k = kindTypes
	}
	e.scratch = t.appendTo(e.scratch[:0], e.cfg.Enterprise)
	if t.scope == 0 {
		return e.addTo(ctx, k, setTemplate, e.scratch)
	}
	err := e.addTo(ctx, k, setOptionsTemplate, e.scratch)
	e.msg.close() // nfdump reads one options template of a set
	return err
}

// addOptions adds what stays as it is while the agent runs.
func (e *Exporter) addOptions(ctx context.Context) error {
	b := be.AppendUint32(e.scratch[:0], e.cfg.ObservationDomain)
	b = appendString(b, e.origin.Host)
	if err := e.add(ctx, idDomain, b); err != nil {
		return err
	}
	if err := e.addSampling(ctx); err != nil {
		return err
	}
	for id := uint16(idFlow); id <= idIOAM; id++ {
		if !e.used(id) {
			continue
		}
		b = be.AppendUint16(b[:0], id)
		b = be.AppendUint64(b, templates[id].flowKeys())
		if err := e.add(ctx, idFlowKeys, b); err != nil {
			return err
		}
	}
	e.scratch = b
	return e.ifaces.retain(func(i *iface) error { return e.addInterface(ctx, i) })
}

// addSampling adds the sampling rate, 1 where every packet is counted too: there
// are collectors, such as Akvorado, that discard flows of an unknown rate.
func (e *Exporter) addSampling(ctx context.Context) error {
	const selector, uniformProbabilistic, deterministic, random = 1, 4, 1, 2
	n, algorithm := max(e.origin.Sampling, 1), byte(random)
	if n == 1 {
		algorithm = deterministic
	}
	b := be.AppendUint64(e.scratch[:0], selector)
	b = be.AppendUint16(b, uniformProbabilistic)
	b = be.AppendUint64(b, math.Float64bits(1/float64(n)))
	if err := e.add(ctx, idSampling, b); err != nil {
		return err
	}
	b = be.AppendUint32(b[:0], e.cfg.ObservationDomain)
	b = be.AppendUint32(b, n)
	e.scratch = append(b, algorithm)
	return e.add(ctx, idSamplingInterval, e.scratch)
}

// addTypes describes Waymark's own elements to collectors that do not know them
// (RFC 5610).
func (e *Exporter) addTypes(ctx context.Context) error {
	described := map[uint16]bool{}
	for id := uint16(idFlow); id <= idIOAM; id++ {
		for _, f := range templates[id].fields {
			number, name := f.ID, f.Name
			if f.reverse {
				number |= reverseBit
				name = "reverse" + strings.ToUpper(name[:1]) + name[1:]
			}
			if !f.Own || !e.used(id) || described[number] {
				continue
			}
			described[number] = true
			b := be.AppendUint32(e.scratch[:0], e.cfg.Enterprise)
			b = be.AppendUint16(b, number)
			b = append(b, dataTypes[f.Type], semantics[f.Semantics])
			b = be.AppendUint16(b, unit(f.Element))
			b = be.AppendUint64(b, 0)
			b = be.AppendUint64(b, 0)
			b = appendString(b, name)
			e.scratch = appendString(b, f.Doc)
			if err := e.addTo(ctx, kindTypes, idType, e.scratch); err != nil {
				return err
			}
		}
	}
	return nil
}

// addTotals adds the statistics of RFC 7011 sections 4.1 and 4.3.
func (e *Exporter) addTotals(ctx context.Context) error {
	b := be.AppendUint32(e.scratch[:0], e.cfg.ObservationDomain)
	b = be.AppendUint64(b, e.totals.messages)
	b = be.AppendUint64(b, e.totals.flows)
	b = be.AppendUint64(b, e.totals.bytes)
	if err := e.add(ctx, idStatistics, b); err != nil {
		return err
	}
	b = be.AppendUint32(b[:0], uint32(os.Getpid()))
	b = be.AppendUint64(b, e.notSent.Records)
	b = be.AppendUint64(b, e.notSent.Packets)
	b = be.AppendUint64(b, e.notSent.Bytes)
	b = be.AppendUint64(b, unixMilli(e.notSent.First))
	b = be.AppendUint64(b, unixMilli(e.notSent.Last))
	e.scratch = b
	if err := e.add(ctx, idNotSent, b); err != nil {
		return err
	}
	e.tellLoss = false
	return nil
}

// addInterface adds the names behind an ingressInterface or egressInterface.
func (e *Exporter) addInterface(ctx context.Context, i *iface) error {
	description := i.name
	if i.netns != "" {
		description += " in " + i.netns
		b := be.AppendUint32(e.scratch[:0], e.cfg.ObservationDomain)
		b = be.AppendUint32(b, i.vrf)
		b = appendFixed(b, i.netns, element("VRFname").Len)
		e.scratch = b
		if err := e.add(ctx, idVRF, b); err != nil {
			return err
		}
	}
	b := be.AppendUint32(e.scratch[:0], e.cfg.ObservationDomain)
	b = be.AppendUint32(b, i.id)
	b = appendFixed(b, i.name, element("interfaceName").Len)
	b = appendFixed(b, description+" on "+e.origin.Host, element("interfaceDescription").Len)
	e.scratch = b
	return e.add(ctx, idInterface, b)
}

// add puts an options data record into a message, a new one if need be.
func (e *Exporter) add(ctx context.Context, set uint16, record []byte) error {
	return e.addTo(ctx, kindData, set, record)
}

// addTo puts a template or options data record into a message of a kind.
func (e *Exporter) addTo(ctx context.Context, k kind, set uint16, record []byte) error {
	if !e.msg.fits(k, set, len(record)) {
		if err := e.flush(ctx); err != nil {
			return err
		}
	}
	e.msg.open(k, set)
	e.msg.buf = append(e.msg.buf, record...)
	if set >= idFlow {
		e.msg.dataRecords++
	}
	return nil
}

// unixMilli is 0 for the zero time.
func unixMilli(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixMilli())
}

// appendString adds a variable-length string (RFC 7011 section 7).
func appendString(b []byte, s string) []byte {
	const maxShort = 254
	s = cut(s, maxShort)
	return append(append(b, byte(len(s))), s...)
}

// appendFixed adds a string filled with zeros, at least one.
func appendFixed(b []byte, s string, length uint16) []byte {
	s = cut(s, int(length)-1)
	b = append(b, s...)
	return append(b, make([]byte, int(length)-len(s))...)
}

// cut keeps at most n bytes of s, and no part of a character.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// iface is an interface that the collector was reported of.
type iface struct {
	index, vrf  uint32
	id          uint32 // as ingressInterface or egressInterface
	name, netns string
	used        bool // since the last announcement
}

type ifaceKey struct {
	netns string
	index uint32
}

// interfaces are those that flows were exported of.
type interfaces struct {
	known map[ifaceKey]*iface
	ids   map[uint32]ifaceKey
	vrfs  map[string]uint32 // numbers of network namespaces
	last  *iface            // of the previous record: mostly the same again
}

func newInterfaces() interfaces {
	return interfaces{known: map[ifaceKey]*iface{}, ids: map[uint32]ifaceKey{}, vrfs: map[string]uint32{"": 0}, last: &iface{}}
}

// noIface is in place of an interface that is not known.
var noIface = &iface{}

// of returns the interface of a record and whether it must be announced.
func (is *interfaces) of(r *flow.Record) (_ *iface, fresh bool) {
	return is.named(ifaceKey{r.Netns, r.IfIndex}, r.Iface)
}

// otherOf likewise returns the interface on the other side.
func (is *interfaces) otherOf(r *flow.Record) (_ *iface, fresh bool) {
	if r.Other == "" {
		return noIface, false
	}
	return is.named(ifaceKey{r.Netns, r.OtherIfIndex}, r.Other)
}

func (is *interfaces) named(key ifaceKey, name string) (_ *iface, fresh bool) {
	if l := is.last; l.index == key.index && l.name == name && l.netns == key.netns && l.used {
		return l, false
	}
	i, known := is.known[key]
	if !known || i.name != name {
		vrf, numbered := is.vrfs[key.netns]
		if !numbered {
			vrf = uint32(len(is.vrfs))
			is.vrfs[key.netns] = vrf
		}
		i = &iface{index: key.index, vrf: vrf, name: name, netns: key.netns}
		i.id = is.number(key, vrf)
		is.known[key] = i
		fresh = true
	}
	i.used = true
	is.last = i
	return i, fresh
}

// number is the number of an interface, which no other has: its index, in another
// namespace with the number of that above it. Where that is taken or does not fit, it
// is the largest that is free.
func (is *interfaces) number(key ifaceKey, vrf uint32) uint32 {
	const netnsBits, indexBits = 10, 22
	id := key.index | vrf<<indexBits
	if vrf != 0 && (key.index >= 1<<indexBits || vrf >= 1<<netnsBits) {
		id = math.MaxUint32
	}
	for next := uint32(math.MaxUint32); ; next-- {
		if holder, taken := is.ids[id]; !taken || holder == key {
			break
		}
		id = next
	}
	is.ids[id] = key
	return id
}

// retain forgets interfaces without flows since the last call, so that a host
// of short-lived containers does not collect them, and announces the others.
func (is *interfaces) retain(announce func(*iface) error) error {
	for key, i := range is.known {
		if !i.used {
			delete(is.known, key)
			delete(is.ids, i.id)
			continue
		}
		i.used = false
		if err := announce(i); err != nil {
			return err
		}
	}
	return nil
}
