package gate

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// TestJumboFrames: at XDP in the driver and at tc, rules see frames of several buffers, pass, drop and count them, and captures
// have all of their bytes.
func TestJumboFrames(t *testing.T) {
	const pass, drop = 8972, 8900 // bytes of ICMP data: of the whole MTU, and a little less
	for mode, early := range map[Mode]datapath.Mode{ModeNative: datapath.ModeXDP, ModeTC: ""} {
		cfg := lab.Default()
		cfg.Prefix, cfg.MTU = labtest.Prefix(), 9000
		l := labtest.New(t, cfg)
		alpha, beta := l.Host("alpha"), l.Host("beta")
		g := newGuard(t, beta, beta.Interfaces[0].Name, mode)
		if got := g.dp.Modes(g.iface)[datapath.XDP]; got != early {
			t.Fatalf("%s: at XDP: %q, want %q", mode, got, early)
		}
		g.apply(t, fmt.Sprintf("sample icmp type 8 len 9000\ncount icmp len > 8999\ndrop icmp len %d", drop+28))
		ctx, end := context.WithCancel(t.Context())
		var mu sync.Mutex
		var whole [][]byte
		ended := make(chan error, 1)
		go func() {
			ended <- g.Capture(ctx, WhatSampled, func(p *Packet) {
				mu.Lock()
				defer mu.Unlock()
				whole = append(whole, bytes.Clone(p.Data))
			})
		}()
		await.True(t, "the reader", func() bool { return g.capture.change(func() {}) != 0 })
		send := func(size int, should bool) bool {
			_, err := alpha.Run(t.Context(), "ping", "-c1", "-Mdo", "-pa5", fmt.Sprintf("-s%d", size), fmt.Sprintf("-W%.1f", patience(should).Seconds()), beta.Addr4().String())
			return err == nil
		}
		if !send(pass, true) || send(drop, false) {
			t.Errorf("%s: a packet that should pass does not, or one that should not does", mode)
		}
		await.True(t, "a frame that is dropped", func() bool { return g.dropped(t) > 0 })
		await.True(t, "the captured frame", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(whole) > 0
		})
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		c, err := g.Counters()
		if err != nil {
			t.Fatal(err)
		}
		if r := c.Rules; r[1].Packets != 1 || r[1].Bytes != 9000 || r[2].Packets != 1 || r[2].Dropped != 1 || r[2].DroppedBytes != drop+28 {
			t.Errorf("%s: %+v", mode, r)
		}
		if f := whole[0]; len(f) != 9014 || !bytes.Equal(f[len(f)-4000:], bytes.Repeat([]byte{0xa5}, 4000)) {
			t.Errorf("%s: %d bytes captured: %x", mode, len(f), f)
		}
		if err := g.dp.Detach(g.iface); err != nil {
			t.Error(err)
		}
	}
}
