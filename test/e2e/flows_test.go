package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/waymark-net/waymark/internal/lab/traffic"
	"github.com/waymark-net/waymark/test/await"
)

// TestFlows: what `waymark flows` shows in each form is the same, and what was
// sent.
func TestFlows(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	a := start(t, setup{host: alpha, config: quick + "interfaces: [LINKS]\n"})
	r, err := traffic.Datagrams(t.Context(), alpha, beta, traffic.DatagramConfig{
		To: netip.AddrPortFrom(beta.Addr6(), 7777), Count: 300, Size: 100, Flows: 3,
	})
	if err != nil {
		t.Fatal(err)
	}
	port, segments := transfer(t, alpha, beta)
	filter := "udp and dport 7777 and egress"
	await.Success(t, func() error {
		rows := readCSV(t, a.ask(t, "flows", "-o", "csv", "--by", "dport", filter).stdout)
		if len(rows) != 1 || rows[0]["packets"] != "300" {
			return notYet("%v", rows)
		}
		return nil
	})
	a.covered(t)

	t.Run("forms", func(t *testing.T) {
		const bytes = (100 + 8 + 40) * 100 // of each flow: IPv6, UDP and payload
		lines := parseLines(t, a.ask(t, "flows", "-o", "jsonl", filter).stdout)
		if len(lines) != 3 {
			t.Fatalf("%d flows, want 3", len(lines))
		}
		for _, l := range lines {
			if l.Packets != 100 || l.Bytes != bytes || l.Dst != beta.Addr6().String() || l.Src != alpha.Addr6().String() || l.Proto != 17 {
				t.Errorf("%+v", l)
			}
			if !slices.ContainsFunc(r.From, func(p netip.AddrPort) bool { return int(p.Port()) == l.Sport }) {
				t.Errorf("nobody sent from port %d", l.Sport)
			}
		}
		var document struct {
			Groups int
			Total  struct{ Packets, Bytes uint64 }
			Rows   []record
		}
		if err := json.Unmarshal([]byte(a.ask(t, "flows", "-o", "json", "--limit", "2", filter).stdout), &document); err != nil {
			t.Fatal(err)
		}
		if len(document.Rows) != 2 || document.Groups != 3 || document.Total.Packets != 300 || document.Total.Bytes != 3*bytes {
			t.Errorf("%+v", document)
		}
		rows := readCSV(t, a.ask(t, "flows", "-o", "csv", "--sort", "sport", filter).stdout)
		var ports []int
		for _, row := range rows {
			n, err := strconv.Atoi(row["sport"])
			if err != nil {
				t.Fatal(err)
			}
			ports = append(ports, n)
			if row["packets"] != "100" || row["bytes"] != fmt.Sprint(bytes) || row["proto"] != "udp" {
				t.Errorf("%v", row)
			}
		}
		if len(ports) != 3 || !slices.IsSorted(ports) {
			t.Errorf("sorted by source port, %v", ports)
		}
		table := a.ask(t, "flows", filter)
		if n := strings.Count(table.stdout, "\n"); n != 4 || !strings.HasPrefix(table.stdout, "IFACE") {
			t.Errorf("%d lines:\n%s", n, table.stdout)
		}
		if !strings.Contains(table.stderr, "3 of 3 rows; 300 packets") {
			t.Errorf("summary %q", table.stderr)
		}
		aligned(t, table.stdout)
	})
	t.Run("merged", func(t *testing.T) {
		rows := readCSV(t, a.ask(t, "flows", "-o", "csv", "--by", "src/24/32,proto", filter).stdout)
		if len(rows) != 1 || rows[0]["src"] != "2001:db8::/32" || rows[0]["packets"] != "300" {
			t.Errorf("%v", rows)
		}
		rows = readCSV(t, a.ask(t, "flows", "-o", "csv", "--by", "conversation", fmt.Sprintf("port %d", port)).stdout)
		if len(rows) != 1 || number(t, rows[0]["packets"]) <= segments {
			t.Errorf("both ways of a conversation are one row: %v", rows)
		}
		rows = readCSV(t, a.ask(t, "flows", "-o", "csv", fmt.Sprintf("sport %d and egress", port)).stdout)
		if len(rows) != 1 || rows[0]["packets"] != fmt.Sprint(segments) {
			t.Errorf("%d segments: %v", segments, rows)
		}
	})
	t.Run("nothing", func(t *testing.T) {
		r := a.ask(t, "flows", "dport 1")
		if r.code != 0 || r.stdout != "" || !strings.Contains(r.stderr, "0 of 0 rows") {
			t.Errorf("%+v", r)
		}
	})
	t.Run("follow", func(t *testing.T) {
		p := spawn(t, nil, command(program, "flows", "--socket", a.socket, "--follow", "-o", "jsonl", "dport 7778 and egress"))
		const count = 10
		var sent uint64
		await.Success(t, func() error {
			sent += count
			if _, err := traffic.Datagrams(t.Context(), alpha, beta, traffic.DatagramConfig{
				To: netip.AddrPortFrom(beta.Addr4(), 7778), Count: count, Size: 100,
			}); err != nil {
				t.Fatal(err)
			}
			if p.stdout.String() == "" {
				return notYet("nothing is shown")
			}
			return nil
		})
		p.signal(interrupt)
		if code := p.wait(t); code != 0 {
			t.Errorf("exit code %d: %s", code, p.stderr)
		}
		if got := sum(parseLines(t, p.stdout.String()), func(r *record) bool { return r.Dport == 7778 }); got.Packets == 0 || got.Packets > sent {
			t.Errorf("%d packets of %d that were sent", got.Packets, sent)
		}
	})
	t.Run("follow ends with the agent", func(t *testing.T) {
		p := spawn(t, nil, command(program, "flows", "--socket", a.socket, "--follow"))
		await.Success(t, func() error { // it has asked
			if !strings.Contains(must(t, nil, "ss", "-xnH", "src", a.socket), "ESTAB") {
				return notYet("nobody asks")
			}
			return nil
		})
		a.stop(t)
		if code := p.wait(t); code != 1 || !strings.Contains(p.stderr.String(), "agent") {
			t.Errorf("exit code %d: %s", code, p.stderr)
		}
	})
}

// aligned checks a table's edges: no row begins or ends with blanks, and right
// columns end where their title does.
func aligned(t *testing.T, table string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(table, "\n"), "\n")
	for _, line := range lines {
		if strings.Trim(line, " ") != line || utf8.RuneCountInString(line) != utf8.RuneCountInString(lines[0]) {
			t.Errorf("not aligned:\n%s", table)
			return
		}
	}
}

// TestReadCapture: the flows of a capture are what tshark finds in it.
func TestReadCapture(t *testing.T) {
	t.Parallel()
	_, alpha, beta := newLab(t)
	file := filepath.Join(t.TempDir(), "trace.pcap")
	capture := spawn(t, alpha, command("tcpdump", "-B", "32768", "-U", "-i", alpha.Interfaces[0].Name, "-w", file))
	await.Success(t, func() error {
		if !strings.Contains(capture.stderr.String(), "listening on") {
			return notYet("tcpdump does not listen")
		}
		return nil
	})
	makeTraffic(t, alpha, beta)()
	size := 0
	await.Success(t, func() error { // until tcpdump has written all
		if now := len(readText(t, file)); now != size || now == 0 {
			size = now
			return notYet("%d bytes so far", now)
		}
		return nil
	})
	capture.signal(interrupt)
	capture.wait(t)

	r := waymark(t, "flows", "--read", file, "-o", "csv", "--limit", "0", "--by", "src,dst,proto,sport,dport", "tcp or udp")
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	got := map[string]amount{}
	for _, row := range readCSV(t, r.stdout) {
		key := fmt.Sprint(row["src"], " ", row["dst"], " ", protocols[row["proto"]], " ", row["sport"], " ", row["dport"])
		got[key] = amount{number(t, row["packets"]), number(t, row["bytes"]), number(t, row["wire_bytes"])}
	}
	if want := tsharkFlows(t, file); !maps.Equal(got, want) {
		t.Errorf("waymark: %v\ntshark: %v", got, want)
	}
	if len(got) < 10 {
		t.Errorf("%d flows tell nothing", len(got))
	}
}

func number(t *testing.T, s string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tsharkFlows(t *testing.T, file string) map[string]amount {
	t.Helper()
	fields := []string{
		"frame.len", "ip.src", "ip.dst", "ip.len", "ipv6.src", "ipv6.dst", "ipv6.plen",
		"tcp.srcport", "tcp.dstport", "udp.srcport", "udp.dstport",
	}
	argv := []string{"tshark", "-r", file, "-T", "fields", "-Y", "tcp or udp"}
	for _, f := range fields {
		argv = append(argv, "-e", f)
	}
	flows := map[string]amount{}
	for line := range strings.Lines(must(t, nil, argv...)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		src, dst, size := f[1], f[2], uint64(0)
		if src != "" {
			size = number(t, f[3])
		} else {
			src, dst, size = f[4], f[5], number(t, f[6])+40
		}
		proto, ports := "6", f[7]+" "+f[8]
		if f[7] == "" {
			proto, ports = "17", f[9]+" "+f[10]
		}
		key := src + " " + dst + " " + proto + " " + ports
		a := flows[key]
		flows[key] = amount{a.Packets + 1, a.Bytes + size, a.WireBytes + number(t, f[0])}
	}
	return flows
}
