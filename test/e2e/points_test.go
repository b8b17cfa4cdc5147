package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/hops"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// TestPoints: five hosts in a row send what they count to an analyzer. A rule at the middle one drops some packets of a UDP flow: the
// analyzer names the row, that host, and exactly these packets. In totals, the flow counts as the sender's interface counted it.
func TestPoints(t *testing.T) {
	t.Parallel()
	const kept, dropped = 60, 7
	l := labtest.New(t, lab.Config{Topology: "chain"})
	row := []string{"alpha", "athos", "porthos", "aramis", "beta"}
	dir := openDir(t)
	socket, config := filepath.Join(dir, "analyze.sock"), filepath.Join(dir, "analyze.yaml")
	at := l.Host("aramis")
	address := at.Addr4().String()
	writeText(t, config, fmt.Sprintf("analyze: {listen: '%s:8476', names: [%s], path: %s}\napi: {socket: %s}\n", address, address, filepath.Join(dir, "data"), socket))
	spawn(t, at, command(program, "analyze", "--config", config))
	await.Success(t, func() error {
		if r := waymark(t, "status", "--socket", socket); r.code != 0 {
			return notYet("%s", r.stderr)
		}
		return nil
	})
	ready := map[string]chan struct{}{}
	for _, name := range row {
		host := l.Host(name)
		own := filepath.Join(dir, name)
		token := strings.TrimSpace(waymark(t, "analyze", "token", name, "--config", config).stdout)
		lines := must(t, host, program, "join", "https://"+address+":8476", token, "--dir", own)
		lines = strings.Replace(lines, "{url:", "{path: "+filepath.Join(own, "queue")+", url:", 1)
		gate := ""
		if name == "porthos" {
			writeText(t, filepath.Join(dir, "rules"), "drop udp dst port 9000 len = 128\n")
			gate = "gate: {interfaces: [to-athos], mode: native, rules: " + filepath.Join(dir, "rules") + "}\n"
		}
		_, ready[name] = launch(t, setup{host: host, config: "flow: {max_entries: 4096, scan_interval: 500ms}\ninterfaces: [to-*]\n" + gate + lines})
	}
	for name, ok := range ready {
		select {
		case <-ok:
		case <-time.After(await.Patience):
			t.Fatalf("the agent on %s was not ready within %v", name, await.Patience)
		}
	}
	// What agents send to the analyzer is in their records: each has sent an interval, and counts before the flow begins.
	await.Success(t, func() error {
		if rows := byHost(t, socket, "tcp"); len(rows) < len(row) {
			return notYet("the analyzer has records of %v", rows)
		}
		return nil
	})
	sendSizes(t, l.Host("alpha"), l.Host("beta"), map[int]int{10: kept, 100: dropped})

	var way hops.Way
	await.Success(t, func() error {
		var ways hops.Ways
		read(t, &ways, "points", "udp dst port 9000", "--socket", socket, "-o", "json")
		if len(ways.Flows) != 1 || len(ways.Incomplete) > 0 {
			return notYet("%+v", ways)
		}
		way = ways.Flows[0]
		var got, want []string
		for i := range way.Parts {
			p := &way.Parts[i]
			got = append(got, fmt.Sprintf("%s %v > %v: %d of %d, lost %d ±%d, dropped %d", p.Kind, p.From[0].String(), p.To[0].String(), p.Received, p.Sent, p.Lost, p.Margin, p.Dropped))
		}
		n := kept + dropped
		for i := range len(row) - 1 {
			from, to := row[i], row[i+1]
			want = append(want, fmt.Sprintf("link %s to-%s > %s to-%s: %d of %d, lost 0 ±0, dropped 0", from, to, to, from, n, n))
			if i+2 == len(row) {
				break
			}
			lost := 0
			if to == "porthos" {
				lost = dropped
			}
			want = append(want, fmt.Sprintf("host %s to-%s > %s to-%s: %d of %d, lost %d ±0, dropped %d", to, from, to, row[i+2], n-lost, n, lost, lost))
			n -= lost
		}
		if got, want := strings.Join(got, "\n"), strings.Join(want, "\n"); got != want {
			return notYet("%s\nwant\n%s", got, want)
		}
		return nil
	})
	if len(way.Unconfirmed)+len(way.Notes) > 0 {
		t.Errorf("not confirmed %q, notes %q", way.Unconfirmed, way.Notes)
	}
	shown := waymark(t, "points", "udp dst port 9000", "--socket", socket)
	wants(t, shown, 0, "1 flow, 1 of them with loss")
	if !strings.Contains(shown.stdout, "\nhost  porthos to-athos") || !strings.Contains(shown.stdout, "7 dropped by rules") {
		t.Errorf("the host and its loss are not shown:\n%s", shown.stdout)
	}

	for name, want := range map[string]int{"alpha": kept + dropped, "athos": kept + dropped, "porthos": kept + dropped, "aramis": kept, "beta": kept} {
		if got := byHost(t, socket, "udp dst port 9000")[name]; got != uint64(want) {
			t.Errorf("%s counted %d packets, want %d", name, got, want)
		}
	}
	for _, by := range []string{"dport", "host", "flow", "conversation", "transit"} {
		a := ask(t, socket, "udp dst port 9000", by)
		if a.Total.Packets != kept+dropped || a.Total.Packets+a.Repeated.Packets != 4*(kept+dropped)+4*kept || a.SharedFlows != 1 {
			t.Errorf("by %s: %d packets in total, %d repeated, %d flows of several hosts", by, a.Total.Packets, a.Repeated.Packets, a.SharedFlows)
		}
	}
	if a := ask(t, socket, "udp dst port 9000", "dport", "--host", "aramis,beta"); a.Total.Packets != kept || a.SharedFlows != 1 {
		t.Errorf("aramis and beta: %d packets", a.Total.Packets)
	}
	if r := waymark(t, "flows", "udp dst port 9000", "--socket", socket); !strings.HasPrefix(r.stdout, "HOST ") || strings.Count(r.stdout, "\n") != 9 {
		t.Errorf("rows by flow name no host:\n%s", r.stdout)
	}
	if a := ask(t, socket, "udp dst port 9000", "dport", "--everywhere"); a.Total.Packets != 4*(kept+dropped)+4*kept {
		t.Errorf("everywhere: %d packets", a.Total.Packets)
	}
}

// totals are what is read of an answer.
type totals struct {
	Total, Repeated struct{ Packets uint64 }
	SharedFlows     int `json:"shared_flows"`
	Rows            []struct {
		Host    string
		Packets uint64
	}
}

func ask(t *testing.T, socket, filter, by string, more ...string) (a totals) {
	t.Helper()
	read(t, &a, append([]string{"flows", filter, "--by", by, "--socket", socket, "-o", "json"}, more...)...)
	return a
}

// byHost are the packets that each host counted.
func byHost(t *testing.T, socket, filter string) map[string]uint64 {
	t.Helper()
	packets := map[string]uint64{}
	for _, row := range ask(t, socket, filter, "host").Rows {
		packets[row.Host] += row.Packets
	}
	return packets
}

// read decodes what a verb prints.
func read(t *testing.T, into any, args ...string) {
	t.Helper()
	r := waymark(t, args...)
	if err := json.Unmarshal([]byte(r.stdout), into); err != nil || r.code != 0 {
		t.Fatalf("%v: %v: %s %s", args, err, r.stdout, r.stderr)
	}
}

// sendSizes sends datagrams of some sizes, with one flow: so many of each.
func sendSizes(t *testing.T, from, to *lab.Host, sizes map[int]int) {
	t.Helper()
	var in, out *net.UDPConn
	addr := &net.UDPAddr{IP: to.Addr4().AsSlice(), Port: 9000}
	if err := to.Do(func() (err error) { in, err = net.ListenUDP("udp4", addr); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	if err := from.Do(func() (err error) { out, err = net.DialUDP("udp4", nil, addr); return err }); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for size, n := range sizes {
		for range n {
			if _, err := out.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
