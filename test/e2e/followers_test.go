package e2e

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/await"
)

// TestFollowersUnderFlood: while 88,000 new flows come in every second, ten who
// follow the ten largest, or as many as are let in and never read, take at most half
// of the memory that the agent takes without them.
func TestFollowersUnderFlood(t *testing.T) {
	t.Parallel()
	const flows = 176_000
	peak := func(followers int, query string) int {
		h := oneLink(t)
		a := start(t, setup{host: h, config: "interfaces: [near]\nflow: {scan_interval: 1s}\nexport: [{jsonl: {path: DIR/flows.jsonl}}]\n"})
		for range followers {
			conn, err := net.Dial("unix", a.socket)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := fmt.Fprintf(conn, "GET /api/v1/flows?follow=true%s HTTP/1.1\r\nHost: waymark\r\n\r\n", query); err != nil {
				t.Fatal(err)
			}
			if query != "" { // the others never read
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
		}
		end, most := make(chan struct{}), make(chan int)
		go func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			highest := 0
			for {
				select {
				case <-tick.C:
					highest = max(highest, residentMemory(t, a.Process.Pid))
				case <-end:
					most <- highest
					return
				}
			}
		}()
		newFlows(t, h, flows, flows*time.Second/88_000)
		await.Success(t, func() error { // the last of them are in an answer
			if s := a.status(t); s.Table.Live+s.Drain.Records < flows {
				return notYet("%d flows are known", s.Table.Live+s.Drain.Records)
			}
			return nil
		})
		close(end)
		n := <-most
		a.stop(t)
		return n
	}
	// The collector of a busy machine comes late to one agent, and not to another: what followers take is there each time.
	for try := 3; ; try-- {
		none, ten, silent := peak(0, ""), peak(10, "&limit=10"), peak(32, "")
		t.Logf("peak %d MB without followers, %d MB with 10 who follow ten rows, %d MB with 32 who never read", none>>20, ten>>20, silent>>20)
		if most := none * 3 / 2; ten <= most && silent <= most {
			return
		}
		if try == 1 {
			t.Fatal("want at most half as much again as without followers, in one of three tries")
		}
	}
}
