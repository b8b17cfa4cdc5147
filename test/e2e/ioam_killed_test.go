package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ioamservice "github.com/waymark-net/waymark/internal/inband/ioam/service"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
)

// insertAll inserts a trace into all packets of a host, by its only interface.
func insertAll(h *lab.Host, every string) string {
	return quick + fmt.Sprintf(`
interfaces: [%[1]s]
ioam:
  node: {id: 1}
  interfaces: [%[1]s:11:both]
  namespaces: [{id: 123}]
  insert: [{to: "::/0", every: %[2]s, mode: inline, namespace: 123, size: 48, trace: [hop_limit_node_id, timestamp_seconds, timestamp_fraction]}]
`, h.Interfaces[0].Name, every)
}

// TestKilledWhileInserting: TCP transfers go on while insertions change, and when the agent that removes options, and then
// the one that inserts them, is killed; `waymark restore` restores the MTU headroom, as for PDM; and an interface may go away
// under an agent that inserts.
func TestKilledWhileInserting(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	iface := alpha.Interfaces[0].Name
	before := reducible(t, alpha, iface)
	removes := strings.NewReplacer("{id: 123}", "{id: 123, remove: true}", "{id: 1}", "{id: 2}", ":11:", ":21:").Replace(insertAll(beta, "1"))
	removes = removes[:strings.Index(removes, "  insert:")]
	end := start(t, setup{host: beta, config: removes})
	transfers := transferAlways(t, alpha, beta)
	a := start(t, setup{host: alpha, config: insertAll(alpha, "1")})
	transfers.await(t, 3)
	for _, every := range []string{"1/2", "1/100", "1"} {
		a.reload(t, insertAll(alpha, every), "configuration reloaded")
		transfers.await(t, 2)
	}
	if got := reducible(t, alpha, iface); got == before {
		t.Errorf("while inserting: %s", got)
	}
	s := a.status(t)
	if in := ioamservice.StatusOf(&s).Insertions; len(in) != 1 || in[0].Inserted == 0 {
		t.Errorf("insertions %+v", in)
	}
	end.kill() // the options stay in the packets
	transfers.await(t, 3)
	a.kill()
	transfers.await(t, 3)
	must(t, nil, program, "restore")
	if got := reducible(t, alpha, iface); got != before {
		t.Errorf("restored %s, before %s", got, before)
	}
	a = start(t, setup{host: alpha, config: insertAll(alpha, "1")})
	transfers.await(t, 3)
	transfers.end()
	must(t, alpha, "ip", "link", "del", iface)
	await.Success(t, func() error {
		for _, h := range a.status(t).Hooks {
			if h.Iface == iface && h.State == "attached" {
				return notYet("%+v", h)
			}
		}
		return nil
	})
	a.stop(t)
}

// always is one TCP transfer after the other.
type always struct {
	done atomic.Int64
	end  func()
}

// transferAlways sends from one host to another until the end of the test. Each transfer must arrive, and none take long.
func transferAlways(t *testing.T, from, to *lab.Host) *always {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	a := &always{end: func() {
		cancel()
		<-ended
	}}
	t.Cleanup(a.end)
	go func() {
		defer close(ended)
		for {
			r, err := traffic.Bulk(ctx, from, to, traffic.BulkConfig{To: netip.AddrPortFrom(to.Addr6(), 0), Bytes: 1 << 20})
			if ctx.Err() != nil {
				return
			}
			if err != nil || r.Duration > 10*time.Second {
				t.Errorf("a transfer took %v: %v", r.Duration, err)
			}
			a.done.Add(1)
		}
	}()
	return a
}

// await waits until so many transfers more have ended.
func (a *always) await(t *testing.T, transfers int64) {
	t.Helper()
	want := a.done.Load() + transfers
	await.Success(t, func() error {
		if n := a.done.Load(); n < want {
			return notYet("%d transfers, want %d", n, want)
		}
		return nil
	})
}
