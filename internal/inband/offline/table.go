package offline

import (
	"cmp"
	"time"

	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/order"
)

// Conversation is both directions of a flow.
type Conversation struct {
	inband.Conversation
	First, Last time.Time // of the marked packets; zero where the capture does not tell

	flow      Flow // as the first packet has it: side 0 sent it
	requester inband.Side
	sure      bool // a TCP handshake showed who asks

	number      uint64        // in the order of first packets
	packets     uint64        // that were added
	bytes       int           // of memory
	older, next *Conversation // by the time of the last packet
}

// tableBytes bounds a table: some ten thousand conversations of few packets, or a
// thousand of many.
const tableBytes = 128 << 20

// perConversation is what the index takes for a conversation, about.
const perConversation = 256

// Table keeps the conversations of a capture, within a bound: the one without
// packets for the longest time makes room for a new one.
type Table struct {
	most   int // bytes
	byFlow map[Flow]*Conversation
	oldest *Conversation
	newest *Conversation
	bytes  int
	began  uint64

	dropped        uint64
	droppedPackets uint64
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{most: tableBytes, byFlow: map[Flow]*Conversation{}} }

// Add takes the next packet, which carries a valid option.
func (t *Table) Add(p *Packet) inband.Observation {
	c, side := t.find(p.Flow)
	if c.First.IsZero() {
		c.First = p.Time
	}
	if p.Time.After(c.Last) {
		c.Last = p.Time
	}
	if !c.sure && (p.syn || p.synAck) {
		c.requester, c.sure = side, true
		if p.synAck {
			c.requester = side.Other()
		}
	}
	c.packets++
	o := c.Conversation.Add(side, p.inband())
	t.bytes -= c.bytes
	c.bytes = c.Bytes() + perConversation
	t.bytes += c.bytes
	for t.bytes > t.most && t.oldest != c {
		t.drop(t.oldest)
	}
	return o
}

func (t *Table) find(f Flow) (*Conversation, inband.Side) {
	if c := t.byFlow[f]; c != nil {
		t.unlink(c)
		t.link(c)
		return c, 0
	}
	if c := t.byFlow[Flow{Src: f.Dst, Dst: f.Src, Proto: f.Proto}]; c != nil {
		t.unlink(c)
		t.link(c)
		return c, 1
	}
	c := &Conversation{flow: f, number: t.began}
	t.began++
	t.byFlow[f] = c
	t.link(c)
	return c, 0
}

// link makes c the newest.
func (t *Table) link(c *Conversation) {
	c.older, c.next = t.newest, nil
	if t.newest != nil {
		t.newest.next = c
	} else {
		t.oldest = c
	}
	t.newest = c
}

func (t *Table) unlink(c *Conversation) {
	if c.older != nil {
		c.older.next = c.next
	} else {
		t.oldest = c.next
	}
	if c.next != nil {
		c.next.older = c.older
	} else {
		t.newest = c.older
	}
}

// drop forgets a conversation and counts what it had.
func (t *Table) drop(c *Conversation) {
	t.unlink(c)
	delete(t.byFlow, c.flow)
	t.bytes -= c.bytes
	t.dropped++
	t.droppedPackets += c.packets
}

// Dropped is how many conversations made room for others, and how many packets
// these had. A conversation that goes on after that counts as a new one.
func (t *Table) Dropped() (conversations, packets uint64) { return t.dropped, t.droppedPackets }

// Conversations returns all in the order of their first packets.
func (t *Table) Conversations() []*Conversation {
	all := make([]*Conversation, 0, len(t.byFlow))
	for _, c := range t.byFlow {
		all = append(all, c)
	}
	order.By(all, func(a, b *Conversation) int { return cmp.Compare(a.number, b.number) })
	return all
}

// Flow is the 5-tuple with the client, who asks, as source and the server, who
// answers, as destination.
func (c *Conversation) Flow() Flow {
	if c.Requester() == 0 {
		return c.flow
	}
	return Flow{Src: c.flow.Dst, Dst: c.flow.Src, Proto: c.flow.Proto}
}

// Client is what the requester's packets reported, Server what the responder's did.
func (c *Conversation) Client() *inband.SideStats { return &c.Sides[c.Requester()] }

// Server is the other side of Client.
func (c *Conversation) Server() *inband.SideStats { return &c.Sides[c.Requester().Other()] }

// Requester is the side that asks: by the TCP handshake; else, where both mark
// their packets, the one that sent before it had received; else the one with the
// higher port, and the first to send where these are equal.
func (c *Conversation) Requester() inband.Side {
	if c.sure {
		return c.requester
	}
	if side, known := c.Initiator(); known && c.Sides[0].Packets > 0 && c.Sides[1].Packets > 0 {
		return side
	}
	if c.flow.Src.Port() < c.flow.Dst.Port() {
		return 1
	}
	return 0
}
