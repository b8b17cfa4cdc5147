package offline

import (
	"time"

	"github.com/waymark-net/waymark/internal/inband"
)

// Conversation is both directions of a flow.
type Conversation struct {
	inband.Conversation
	First, Last time.Time // of the marked packets; zero where the capture does not tell

	flow      Flow // as the first packet has it: side 0 sent it
	requester inband.Side
	sure      bool // a TCP handshake told who asks
}

// Table keeps the conversations of a capture.
type Table struct {
	byFlow map[Flow]*Conversation
	order  []*Conversation
}

// NewTable returns an empty table.
func NewTable() *Table { return &Table{byFlow: make(map[Flow]*Conversation)} }

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
	return c.Conversation.Add(side, p.inband())
}

func (t *Table) find(f Flow) (*Conversation, inband.Side) {
	if c := t.byFlow[f]; c != nil {
		return c, 0
	}
	if c := t.byFlow[Flow{Src: f.Dst, Dst: f.Src, Proto: f.Proto}]; c != nil {
		return c, 1
	}
	c := &Conversation{flow: f}
	t.byFlow[f] = c
	t.order = append(t.order, c)
	return c, 0
}

// Conversations returns all in the order of their first packets.
func (t *Table) Conversations() []*Conversation { return t.order }

// Flow is the 5-tuple with the client, who asks, as source and the server, who
// answers, as destination.
func (c *Conversation) Flow() Flow {
	if c.Requester() == 0 {
		return c.flow
	}
	return Flow{Src: c.flow.Dst, Dst: c.flow.Src, Proto: c.flow.Proto}
}

// Client is what the requester's packets told, Server what the responder's did.
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
