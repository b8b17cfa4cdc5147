package e2e

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/test/await"
)

// ends are a conversation as its client knows it.
type ends struct {
	proto          int
	client, server netip.AddrPort
}

func (e ends) String() string { return fmt.Sprint(e.proto, " ", e.client, " ", e.server) }

// serve answers on a port of a host, over TCP and UDP, until the test ends.
func serve(t *testing.T, h *lab.Host, addr netip.AddrPort) {
	t.Helper()
	if err := h.Do(func() error {
		l, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(addr))
		if err != nil {
			return err
		}
		u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		if err != nil {
			return err
		}
		t.Cleanup(func() { l.Close(); u.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					defer c.Close()
					_, _ = io.Copy(c, c) // the client counts what comes back
				}()
			}
		}()
		go func() {
			b := make([]byte, 1500)
			for {
				n, from, err := u.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				_, _ = u.WriteToUDPAddrPort(b[:n], from) // likewise
			}
		}()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// exchange is one short conversation. local is the client's port; 0: the kernel chooses.
func exchange(t *testing.T, h *lab.Host, network string, server netip.AddrPort, local int) ends {
	t.Helper()
	d := net.Dialer{Timeout: await.Patience}
	e := ends{proto: 6, server: server}
	if network == "udp" {
		e.proto = 17
		d.LocalAddr = &net.UDPAddr{Port: local}
	}
	if err := h.Do(func() error {
		c, err := d.Dial(network, server.String())
		if err != nil {
			return err
		}
		defer c.Close()
		e.client = netip.MustParseAddrPort(c.LocalAddr().String())
		if err := c.SetDeadline(time.Now().Add(await.Patience)); err != nil {
			return err
		}
		if _, err := c.Write([]byte("query")); err != nil {
			return err
		}
		_, err = io.ReadFull(c, make([]byte, 5))
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestInitiator: of many short conversations, TCP and UDP, whose packets come within
// one tick and whose servers have the higher ports, both probes, captures and IPFIX
// name the right initiator, each time.
func TestInitiator(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	file := filepath.Join(t.TempDir(), "trace.pcap")
	capture := spawn(t, alpha, command("tcpdump", "-B", "32768", "-U", "--immediate-mode", "-i", alpha.Interfaces[0].Name, "-w", file))
	await.Success(t, func() error {
		if !strings.Contains(capture.stderr.String(), "listening on") {
			return notYet("tcpdump does not listen")
		}
		return nil
	})
	// No flow may be exported between query and response, which come late on a busy machine: biflows need both.
	const flows = "flow: {max_entries: 4096, scan_interval: 50ms, idle_timeout: 2m, active_timeout: 5m}\n"
	const exports = "interfaces: [LINKS]\nexport:\n  - jsonl: {path: DIR/flows.jsonl}\n"
	c := newCollector(t, alpha, "127.0.0.1")
	agents := []*agent{
		start(t, setup{host: alpha, config: flows + exports + "  - ipfix: {collector: \"udp://127.0.0.1:4739\", biflow: true}\n"}),
		start(t, setup{host: beta, config: flows + exports + "probe: afpacket\n"}),
	}

	const rounds = 20
	conversations := map[string]ends{}
	for _, side := range []struct{ client, server *lab.Host }{{alpha, beta}, {beta, alpha}} {
		for _, port := range []uint16{60999, 50051, 53, 1} {
			for _, addr := range []netip.Addr{side.server.Addr4(), side.server.Addr6()} {
				serve(t, side.server, netip.AddrPortFrom(addr, port))
			}
		}
		for n := range rounds {
			to := func(port uint16) netip.AddrPort {
				if n%2 == 0 {
					return netip.AddrPortFrom(side.server.Addr4(), port)
				}
				return netip.AddrPortFrom(side.server.Addr6(), port)
			}
			for _, e := range []ends{
				exchange(t, side.client, "tcp", to(60999), 0),
				exchange(t, side.client, "tcp", to(50051), 0),
				exchange(t, side.client, "tcp", to(53), 0),
				exchange(t, side.client, "tcp", to(1), 0),
				exchange(t, side.client, "udp", to(60999), 0),
				exchange(t, side.client, "udp", to(60999), 1024+n),
				exchange(t, side.client, "udp", to(50051), 0),
				exchange(t, side.client, "udp", to(53), 0),
			} {
				conversations[e.String()] = e
			}
		}
	}
	for _, a := range agents {
		a.covered(t)
		rows := readCSV(t, a.ask(t, "flows", "--by", "conversation", "--limit", "0", "-o", "csv", "tcp or udp").stdout)
		var pairs []biflow
		for _, w := range rows {
			pairs = append(pairs, biflow{
				protocols[w["proto"]], addrPort(w["src"], int(number(t, w["sport"]))), addrPort(w["dst"], int(number(t, w["dport"]))),
			})
		}
		judgePairs(t, "--by conversation", conversations, pairs)
		a.stop(t)
		judgeInitiators(t, a.dir, conversations, readLines(t, a.path("flows.jsonl")))
	}
	var captured []record
	await.Success(t, func() error { // tcpdump reads its buffer when it likes
		r := waymark(t, "flows", "--read", file, "-o", "jsonl", "--limit", "0", "tcp or udp")
		captured = parseLines(t, r.stdout)
		if n := len(captured); n < 2*len(conversations) {
			return notYet("%d halves of %d conversations", n, len(conversations))
		}
		return nil
	})
	judgeInitiators(t, file, conversations, captured)
	judgePairs(t, "nfdump", conversations, c.biflows(t, alpha))
}

// judgeInitiators checks both halves of every conversation.
func judgeInitiators(t *testing.T, what string, conversations map[string]ends, records []record) {
	t.Helper()
	halves := map[string]int{}
	wrong := map[string]int{}
	for _, r := range records {
		src, dst := addrPort(r.Src, r.Sport), addrPort(r.Dst, r.Dport)
		by := "handshake"
		if r.Proto == 17 {
			by = "first"
		}
		forth, back := ends{r.Proto, src, dst}.String(), ends{r.Proto, dst, src}.String()
		switch {
		case conversations[forth].proto != 0:
			halves[forth] |= 1
			if r.Initiator != "src" || r.InitiatorBy != by {
				wrong[fmt.Sprint(r.Proto, " ", r.Sport > r.Dport, " forth: ", r.Initiator, " by ", r.InitiatorBy)]++
			}
		case conversations[back].proto != 0:
			halves[back] |= 2
			if r.Initiator != "dst" || r.InitiatorBy != by {
				wrong[fmt.Sprint(r.Proto, " ", r.Sport > r.Dport, " back: ", r.Initiator, " by ", r.InitiatorBy)]++
			}
		}
	}
	for e := range conversations {
		if halves[e] != 3 {
			t.Errorf("%s: halves %d of %s", what, halves[e], e)
		}
	}
	if len(wrong) > 0 {
		t.Errorf("%s: of %d conversations, not src or dst by the best evidence: %v", what, len(conversations), wrong)
	}
}

func addrPort(addr string, port int) netip.AddrPort {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(a, uint16(port))
}

// biflow is a conversation as nfdump knows it.
type biflow struct {
	proto    int
	src, dst netip.AddrPort
}

// biflows are those whose source nfdump calls the initiator, for certain.
func (c *collector) biflows(t *testing.T, h *lab.Host) (out []biflow) {
	t.Helper()
	c.records(t, h) // ends nfcapd
	files, err := filepath.Glob(filepath.Join(c.dir, "nfcapd.2*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("nfcapd wrote nothing: %v", err)
	}
	for _, file := range files {
		text := must(t, nil, "nfdump", "-q", "-r", file, "-o", "raw")
		for block := range strings.SplitSeq(text, "RecordCount") {
			v := map[string]string{}
			for line := range strings.Lines(block) {
				if name, value, ok := strings.Cut(line, "="); ok {
					v[strings.TrimSpace(name)] = strings.TrimSpace(value)
				}
			}
			if !strings.Contains(v["biFlow Dir"], "initiator") {
				continue
			}
			var b biflow
			var sport, dport int
			for name, to := range map[string]*int{"proto": &b.proto, "src port": &sport, "dst port": &dport} {
				if _, err := fmt.Sscan(v[name], to); err != nil && b.proto != 1 {
					continue // ICMP has no ports
				}
			}
			b.src, b.dst = addrPort(v["src addr"], sport), addrPort(v["dst addr"], dport)
			out = append(out, b)
		}
	}
	return out
}

// judgePairs holds those who show both ways as one to the same.
func judgePairs(t *testing.T, what string, conversations map[string]ends, found []biflow) {
	t.Helper()
	seen, turned := map[string]bool{}, 0
	for _, b := range found {
		if e, ok := conversations[ends{b.proto, b.src, b.dst}.String()]; ok {
			seen[e.String()] = true
		} else if conversations[ends{b.proto, b.dst, b.src}.String()].proto != 0 {
			turned++
		}
	}
	if len(seen) != len(conversations) || turned > 0 {
		t.Errorf("%s has %d of %d conversations from their initiator, and %d the other way round", what, len(seen), len(conversations), turned)
	}
}
