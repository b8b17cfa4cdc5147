package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/analyze/state"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/internal/lab/wire"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/verdict"
	"github.com/waymark-net/waymark/test/await"
)

// TestBetween: of a link between two hosts, one direction loses packets, and the other one is slow. The analyzer finds the link by what both
// hosts are connected with, and names what is wrong with it, though clocks could not say which direction is slow.
func TestBetween(t *testing.T) {
	t.Parallel()
	const flows, packets, every, late = 5, 40, 10, 40 * time.Millisecond
	l := labtest.New(t, lab.Config{Topology: "path"})
	match := wire.Port(17, 9000)
	moveFrames(t, l, wire.Config{AB: wire.Direction{Match: match, DropEvery: every}, BA: wire.Direction{Match: match, Delay: late}})
	alpha, beta := l.Host("alpha"), l.Host("beta")
	dir := openDir(t)
	socket, config := filepath.Join(dir, "analyze.sock"), filepath.Join(dir, "analyze.yaml")
	address := alpha.Addr4().String()
	writeText(t, config, fmt.Sprintf("analyze: {listen: '%s:8476', names: [%s], path: %s}\napi: {socket: %s}\n", address, address, filepath.Join(dir, "data"), socket))
	spawn(t, alpha, command(program, "analyze", "--config", config))
	asks := func(into any, args ...string) error {
		r := waymark(t, append(args, "--socket", socket, "-o", "json")...)
		if err := json.Unmarshal([]byte(r.stdout), into); err != nil {
			return notYet("%v: %v: %s %s", args, err, r.stdout, r.stderr)
		}
		return nil
	}
	await.Success(t, func() error { return asks(&struct{}{}, "status") })
	for _, h := range []*lab.Host{alpha, beta} {
		own := filepath.Join(dir, h.Name)
		token := strings.TrimSpace(waymark(t, "analyze", "token", h.Name, "--config", config).stdout)
		lines := must(t, h, program, "join", "https://"+address+":8476", token, "--dir", own)
		lines = strings.Replace(lines, "{url:", "{path: "+filepath.Join(own, "queue")+", url:", 1)
		start(t, setup{host: h, config: "flow: {max_entries: 4096, scan_interval: 500ms}\ninterfaces: [to-*]\n" + lines})
	}
	await.Success(t, func() error {
		var topology struct {
			Links []struct {
				A, B struct{ Host, Iface string }
			}
		}
		if err := asks(&topology, "topology"); err != nil {
			return err
		}
		if n := len(topology.Links); n != 1 || topology.Links[0].A.Iface != "to-beta" || topology.Links[0].B.Iface != "to-alpha" {
			return notYet("%+v", topology)
		}
		return nil
	})
	await.Success(t, func() error { // each counts, and has for some intervals
		var status obs.Status
		if err := asks(&status, "status"); err != nil {
			return err
		}
		for _, h := range obs.SectionOf[state.Status](&status, state.Section).Hosts {
			if h.Intervals < 3 {
				return notYet("%s has sent %d intervals", h.Name, h.Intervals)
			}
		}
		return nil
	})
	for _, way := range []struct {
		from, to *lab.Host
		port     int
	}{{alpha, beta, 9000}, {alpha, beta, 9001}, {beta, alpha, 9000}} {
		for range flows {
			sendToPort(t, way.from, way.to, way.port, packets)
		}
	}
	await.Success(t, func() error {
		var a verdict.Answer
		if err := asks(&a, "why", "udp"); err != nil {
			return err
		}
		if len(a.Verdicts) != 2 || a.Verdicts[0].Kind != verdict.PathLoss || a.Verdicts[1].Kind != verdict.PathDelay {
			return notYet("%+v", a)
		}
		loss, delay := &a.Verdicts[0], &a.Verdicts[1]
		if w := loss.Where; w.Host != "alpha" || w.ToHost != "beta" || loss.Samples != 2*flows*packets || loss.Value*float64(loss.Samples) != flows*packets/every {
			return notYet("loss: %+v", loss)
		}
		if delay.Value < late.Seconds()/2-0.005 || delay.Value > late.Seconds()+0.02 {
			return notYet("delay: %+v", delay)
		}
		return nil
	})
}

// moveFrames runs the wire of a path until the test ends.
func moveFrames(t *testing.T, l *lab.Lab, cfg wire.Config) {
	t.Helper()
	relay, err := l.NewRelay(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := await.Signal(t, "the end of the wire", ended); err != nil {
			t.Error(err)
		}
	})
	select {
	case <-relay.Ready():
	case err := <-ended:
		t.Fatalf("the wire: %v", err)
	case <-time.After(await.Patience):
		t.Fatal("the wire is not ready")
	}
}

// sendToPort sends a flow of datagrams to a socket that takes them.
func sendToPort(t *testing.T, from, to *lab.Host, port, n int) {
	t.Helper()
	addr := &net.UDPAddr{IP: to.Addr4().AsSlice(), Port: port}
	var in, out *net.UDPConn
	if err := to.Do(func() (err error) { in, err = net.ListenUDP("udp4", addr); return err }); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := from.Do(func() (err error) { out, err = net.DialUDP("udp4", nil, addr); return err }); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for range n {
		if _, err := out.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
	}
}
