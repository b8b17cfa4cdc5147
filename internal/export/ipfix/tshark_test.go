package ipfix

import (
	"bytes"
	"crypto/tls"
	"encoding/xml"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/export/clienttls/tlstest"
	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/await"
)

// node is a field of tshark's packet details.
type node struct {
	Name   string `xml:"name,attr"`
	Show   string `xml:"show,attr"`
	Title  string `xml:"showname,attr"`
	Fields []node `xml:"field"`
	Protos []node `xml:"proto"`
}

func (n *node) walk(visit func(*node)) {
	visit(n)
	for i := range n.Fields {
		n.Fields[i].walk(visit)
	}
	for i := range n.Protos {
		n.Protos[i].walk(visit)
	}
}

// captureIn writes what passes a namespace's loopback to a file, until stop.
func captureIn(t *testing.T, ns *lab.Host) (file string, stop func()) {
	t.Helper()
	need(t, "tcpdump", "tcpdump")
	need(t, "tshark", "tshark")
	file = filepath.Join(t.TempDir(), "capture.pcap")
	// In immediate mode every packet takes a slot of the whole snapshot length: the
	// buffer of 2 MB has eight.
	said, end := startIn(t, ns, "", "tcpdump", "-i", "lo", "-Z", "root", "-U", "--immediate-mode", "-B", "65536", "-w", file)
	await.Success(t, func() error {
		if !strings.Contains(said(), "listening on") {
			return fmt.Errorf("tcpdump is not ready: %s", said())
		}
		return nil
	})
	return file, func() {
		t.Helper()
		marker := []byte("nothing comes behind this")
		if err := ns.Do(func() error {
			// A port of its own: tshark would take some others for those of a protocol.
			from := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}}
			conn, err := from.Dial("udp", "127.0.0.1:9")
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.Write(marker)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		await.Success(t, func() error {
			b, err := os.ReadFile(file)
			if err == nil && !bytes.Contains(b, marker) {
				err = fmt.Errorf("tcpdump has not seen the end: %s", said())
			}
			return err
		})
		end()
	}
}

// tsharkSays decodes a capture, fails on anything that tshark finds odd in it,
// and returns the nodes of flows and of options.
func tsharkSays(t *testing.T, file string, options ...string) (flows, others []*node) {
	t.Helper()
	run := func(args ...string) []byte {
		cmd := exec.Command("tshark", append(append([]string{"-r", file}, options...), args...)...)
		cmd.Env = append(cmd.Environ(), "TZ=UTC")
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("tshark: %v: %s", err, said.String())
		}
		return out
	}
	if odd := run("-Y", "(_ws.expert.severity >= 0x600000 && cflow) || _ws.malformed || cflow.unexpected_sequence_number", "-V"); len(odd) > 0 {
		t.Errorf("tshark finds something odd: %s", odd)
	}
	var capture struct {
		Packets []node `xml:"packet"`
	}
	if err := xml.Unmarshal(run("-T", "pdml"), &capture); err != nil {
		t.Fatal(err)
	}
	for i := range capture.Packets {
		capture.Packets[i].walk(func(n *node) {
			if !strings.HasPrefix(n.Show, "Flow ") {
				return
			}
			if n.find("cflow.flow_end_reason", false) != nil {
				flows = append(flows, n)
			} else {
				others = append(others, n)
			}
		})
	}
	return flows, others
}

// find returns the field of the forward or of the reverse half.
func (n *node) find(name string, reverse bool) *node {
	for i := range n.Fields {
		if f := &n.Fields[i]; f.Name == name && strings.Contains(f.Title, "(Reverse") == reverse {
			return f
		}
	}
	return nil
}

// nth returns the last field of a name, or the first of two for the reverse half.
func (n *node) nth(name string, reverse bool) *node {
	var all []*node
	for i := range n.Fields {
		if n.Fields[i].Name == name {
			all = append(all, &n.Fields[i])
		}
	}
	switch {
	case reverse && len(all) == 2:
		return all[0]
	case !reverse && len(all) > 0:
		return all[len(all)-1]
	}
	return nil
}

const (
	tsharkMust     = "packets bytes wire_bytes payload_bytes tcp_flags tos ttl_min ttl_max end_reason first last"
	tsharkKeys     = " direction family proto vlan"
	tsharkAttached = " src dst dport"
)

// tsharkFlow reads one half of a record.
func tsharkFlow(t *testing.T, n *node, reverse bool) said {
	t.Helper()
	s := said{}
	for theirs, ours := range map[string]string{
		"srcaddr": "src", "dstaddr": "dst", "srcaddrv6": "src", "dstaddrv6": "dst", "srcport": "sport", "dstport": "dport",
		"protocol": "proto", "ip_version": "family", "vlanid": "vlan", "dot1q_customer_vlan_id": "inner_vlan",
		"octets": "bytes", "packets": "packets", "layer2_octet_delta_count": "wire_bytes", "transport_octet_delta_count": "payload_bytes",
		"tcpflags": "tcp_flags", "tos": "tos", "ttl_min": "ttl_min", "ttl_max": "ttl_max", "ipv6flowlabel": "flow_label",
		"icmp_ipv6_type": "icmp_type", "icmp_ipv6_code": "icmp_code",
	} {
		f := n.find("cflow."+theirs, reverse)
		if strings.HasPrefix(theirs, "icmp_ipv6") {
			f = n.nth("cflow."+theirs, reverse) // tshark does not say which half it is of
		}
		if f == nil {
			continue
		}
		s[ours] = f.Show
		if v, err := strconv.ParseUint(f.Show, 0, 64); err == nil {
			s[ours] = fmt.Sprint(v)
		}
	}
	if f := n.find("cflow.icmp_type_code_ipv4", reverse); f != nil {
		v, err := strconv.ParseUint(f.Show, 0, 16)
		if err != nil {
			t.Fatal(err)
		}
		s["icmp_type"], s["icmp_code"] = fmt.Sprint(v>>8), fmt.Sprint(v&0xff)
	}
	if f := n.find("cflow.direction", reverse); f != nil {
		s["direction"] = enum(fieldValues("direction"), f.Show)
	}
	if f := n.find("cflow.flow_end_reason", reverse); f != nil {
		s["end_reason"] = enum(fieldValues("end_reason"), f.Show)
	}
	// Own elements, by their number, as bytes.
	for _, f := range n.Fields {
		m := regexp.MustCompile(`Type (\d+): Value \(hex bytes\): ([0-9a-f ]+)`).FindStringSubmatch(f.Title)
		if m == nil {
			continue
		}
		id, err := strconv.ParseUint(m[1], 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		value, err := strconv.ParseUint(strings.ReplaceAll(m[2], " ", ""), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if (id&reverseBit != 0) != reverse {
			continue
		}
		for _, e := range Elements() {
			if !e.Own || uint64(e.ID) != id&^reverseBit {
				continue
			}
			text := fmt.Sprint(value)
			switch e.Name {
			case "waymarkTunnelType":
				s["tunnel"] = enum(fieldValues("tunnel"), text)
			case "waymarkInitiator":
				s["initiator"] = enumOrNone("initiator", text)
			case "waymarkInitiatorEvidence":
				s["initiator_by"] = enumOrNone("initiator_by", text)
			case "waymarkTunnelKey":
				s["vni"] = text
			case "waymarkFragmentDeltaCount":
				s["fragments"] = text
			case "waymarkCEPacketDeltaCount":
				s["ce_packets"] = text
			case "waymarkDropVerdict":
				s["drops.verdict"] = enum(fieldValues("drops.verdict"), text)
			case "waymarkDropRule":
				s["drops.rule"] = text
			case "waymarkResponderRTTNanoseconds":
				s["rtt.responder_ns"] = text
			case "waymarkInitiatorRTTNanoseconds":
				s["rtt.initiator_ns"] = text
			case "waymarkICMPIdentifier":
				s["sport"] = text
			case "waymarkUnattributed":
				s["unattributed"] = fmt.Sprint(value == 1)
			}
		}
	}
	// Durations hold the times; in a conversation those of the reverse come first.
	exact := &node{}
	for _, f := range n.Fields {
		if strings.Contains(f.Title, "(nanoseconds)") {
			exact.Fields = append(exact.Fields, f)
		}
	}
	if d := exact.nth("cflow.timedelta", reverse); d != nil {
		s["first"], s["last"] = tsharkTime(t, d, "cflow.abstimestart"), tsharkTime(t, d, "cflow.abstimeend")
	}
	return s
}

func tsharkTime(t *testing.T, n *node, name string) string {
	t.Helper()
	at, err := time.Parse("Jan _2, 2006 15:04:05.000000000 MST", n.find(name, false).Show)
	if err != nil {
		t.Fatal(err)
	}
	return timeText(at)
}

// tsharkAgrees compares the records of a session that joined conversations.
func tsharkAgrees(t *testing.T, file string, records []flow.Record, options ...string) {
	t.Helper()
	flows, others := tsharkSays(t, file, options...)
	const conversations = 4
	if len(flows) != len(records)-conversations {
		t.Fatalf("tshark has %d records, want %d", len(flows), len(records)-conversations)
	}
	for i, n := range flows {
		if i >= conversations {
			r := records[conversations+i]
			must := tsharkMust + tsharkKeys
			if !r.Unattributed {
				must += tsharkAttached
			}
			agree(t, origin, r, tsharkFlow(t, n, false), must)
			continue
		}
		agree(t, origin, records[2*i], tsharkFlow(t, n, false), tsharkMust+tsharkKeys+tsharkAttached)
		agree(t, origin, records[2*i+1], tsharkFlow(t, n, true), tsharkMust)
	}

	names := map[string]bool{}
	for _, n := range others {
		for _, f := range n.Fields {
			names[f.Name+" "+f.Show] = true
		}
	}
	for _, want := range []string{
		"cflow.observation_domain_name gw", "cflow.if_name eth0", "cflow.if_name veth7", "cflow.vrfname blue",
		"cflow.if_descr veth7 in blue on gw", "cflow.post_key 00:00:00:00:00:00:03:ff",
	} {
		if !names[want] {
			t.Errorf("options lack %s", want)
		}
	}
}

// receiver accepts one connection in a namespace and returns all that came.
func receiver(t *testing.T, ns *lab.Host, wrap func(net.Conn) net.Conn) (raw <-chan []byte) {
	t.Helper()
	var l net.Listener
	if err := ns.Do(func() (err error) {
		l, err = net.Listen("tcp", "127.0.0.1:4739")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	out := make(chan []byte, 1)
	go func() {
		defer close(out)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if wrap != nil {
			conn = wrap(conn)
		}
		all, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("collector: %v", err)
		}
		out <- all
	}()
	return out
}

// sentByUDP exports records as conversations, and returns a file of the packets and how tshark reads it.
func sentByUDP(t *testing.T, records []flow.Record) (file string, decodeAs []string) {
	t.Helper()
	ns := labtest.UpHost(t)
	file, stop := captureIn(t, ns)
	var collector net.PacketConn
	if err := ns.Do(func() (err error) {
		collector, err = net.ListenPacket("udp", "127.0.0.1:4739")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer collector.Close()
	e := newExporter(t, func(c *Config) { c.Biflow = true })
	e.now = time.Now
	exportIn(t, ns, e, records)
	stop()
	return file, []string{"-d", "udp.port==4739,cflow"}
}

func TestTsharkUDP(t *testing.T) {
	records := judged()
	file, decodeAs := sentByUDP(t, records)
	tsharkAgrees(t, file, records, decodeAs...)
}

func TestTsharkTCP(t *testing.T) {
	ns := labtest.UpHost(t)
	file, stop := captureIn(t, ns)
	raw := receiver(t, ns, nil)
	e := newExporter(t, func(c *Config) { c.Biflow, c.Collector = true, "tcp://127.0.0.1:4739" })
	e.now = time.Now
	records := judged()
	exportIn(t, ns, e, records)
	<-raw
	stop()
	tsharkAgrees(t, file, records, "-d", "tcp.port==4739,cflow")
}

// TLS with a client certificate; tshark sees what the other end has decrypted.
func TestTsharkTLS(t *testing.T) {
	ns := labtest.UpHost(t)
	pki := tlstest.New(t)
	raw := receiver(t, ns, func(c net.Conn) net.Conn { return tls.Server(c, pki.Server(t)) })
	e := newExporter(t, func(c *Config) {
		c.Biflow, c.Collector = true, "tls://127.0.0.1:4739"
		c.CA, c.Cert, c.Key = pki.CA, pki.Cert, pki.Key
	})
	e.now = time.Now
	records := judged()
	exportIn(t, ns, e, records)
	tsharkAgrees(t, asCapture(t, <-raw), records, "-d", "tcp.port==4739,cflow")
}

// asCapture makes bytes of a connection a capture of one TCP segment.
func asCapture(t *testing.T, raw []byte) string {
	t.Helper()
	need(t, "text2pcap", "wireshark-common")
	file := filepath.Join(t.TempDir(), "stream.pcap")
	cmd := exec.Command("text2pcap", "-q", "-T", "40000,4739", "-", file)
	var text bytes.Buffer
	for i := 0; i < len(raw); i += 16 {
		fmt.Fprintf(&text, "%06x % x\n", i, raw[i:min(i+16, len(raw))])
	}
	cmd.Stdin = &text
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("text2pcap: %v: %s", err, out)
	}
	return file
}
