package gate

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/gate/engine"
	"github.com/waymark-net/waymark/internal/gate/rules"
	"github.com/waymark-net/waymark/test/await"
	"github.com/waymark-net/waymark/test/packet"
)

// A rule set that does not fit says how large the tables must be, and changes nothing; in tables of that size it fits.
func TestFit(t *testing.T) {
	var text strings.Builder
	text.WriteString("set few { 192.0.2.1 }\nset many {")
	for i := range 5000 {
		fmt.Fprintf(&text, " 10.%d.%d.1,", i/200, i%200)
	}
	text.WriteString(" }\ndrop src @many,@few")
	rs, _, err := rules.Parse("f", text.String(), rules.Options{Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	cfg := small()
	cfg.Tables.Lines = Lines(256 << 10)
	b := open(t, cfg)
	b.apply(t, "drop udp")
	for _, f := range []func(*rules.Ruleset) error{b.Apply, func(rs *rules.Ruleset) error { _, err := b.Fit(rs); return err }} {
		if err := f(rs); err == nil || !strings.Contains(err.Error(), "gate.table_memory is 0.25MiB: raise it to 2MiB, or use fewer addresses; the largest set is many, with 5000 members") {
			t.Error(err)
		}
	}
	if dropped, _ := b.run(t, hooks[0], packet.Eth().IPv4("192.0.2.9", "192.0.2.2").UDP(1, 2).Bytes()); !dropped || len(b.Rules().Rules) != 1 {
		t.Error("a rule set that does not fit has changed something")
	}
	cfg.Tables.Lines = Lines(2 << 20)
	u, err := New(cfg, slogDiscard()).Fit(rs)
	if err != nil || u.Memory > u.MaxMemory || u.MaxMemory != 2<<20 || u.Rows < 2 || u.Rules != 1 || u.MaxRules != cfg.Tables.Rules {
		t.Errorf("%+v, %v", u, err)
	}
	cfg.Tables = engine.Limits{Lines: Lines(2 << 20), Pages: 1}
	if _, err := New(cfg, slogDiscard()).Fit(rs); err == nil || !strings.Contains(err.Error(), "gate.max_rules") {
		t.Error(err)
	}
}

// The rate of captured packets stays while rules, interfaces and readers come and go.
func TestCaptureRate(t *testing.T) {
	cfg := small()
	cfg.CaptureRate = 1
	b := open(t, cfg)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- b.Capture(ctx, WhatDropped, func(*Packet) {}) }()
	await.True(t, "the reader", func() bool { return b.capture.change(func() {}) != 0 })
	began := time.Now()
	frame := packet.Eth().IPv4("192.0.2.1", "192.0.2.2").UDP(1, 2).Bytes()
	const changes = 20
	for i := range changes {
		b.apply(t, fmt.Sprintf("drop udp\ndrop tcp dst port %d", 1+i))
		b.run(t, hooks[0], frame)
	}
	c, err := b.Captures()
	if most := 1 + uint64(time.Since(began)/time.Second); err != nil || c.Packets > most || c.Packets+c.Limited != changes {
		t.Errorf("%+v of %d packets, %d at most; %v", c, changes, most, err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
