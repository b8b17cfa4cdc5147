package e2e

import (
	"encoding/binary"
	"encoding/csv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/internal/lab/labtest"
	"github.com/waymark-net/waymark/test/packet"
)

// udpFrame is a datagram that no stack answers: it is for another host.
func udpFrame(dport int) []byte {
	return packet.Eth().IPv6("2001:db8::1", "2001:db8::2").UDP(4321, uint16(dport)).Payload(100).Bytes()
}

// sendUDP has an interface of a host send datagrams of a flow that dport names.
func sendUDP(t *testing.T, h *lab.Host, iface string, dport, count int) {
	t.Helper()
	if err := labtest.NewSender(t, h, iface).Send(slices.Repeat([][]byte{udpFrame(dport)}, count)...); err != nil {
		t.Fatal(err)
	}
}

// newFlows has packets arrive on the link of oneLink, each of a flow of its own, evenly over a time.
func newFlows(t *testing.T, h *lab.Host, flows int, over time.Duration) {
	t.Helper()
	pacedFlows(t, h, flows, over, func(int) {})
}

// pacedFlows calls a function before each 256 of them, with their number.
func pacedFlows(t *testing.T, h *lab.Host, flows int, over time.Duration, before func(int)) {
	t.Helper()
	frame := packet.Eth().IPv6("2001:db8::", "2001:db8:ffff::1").UDP(1000, 2000).Payload(50).Bytes()
	const sourceEnd = 14 + 8 + 16
	s := labtest.NewSender(t, h, "nearp")
	began := time.Now()
	for i := range flows {
		if i%256 == 0 {
			time.Sleep(time.Until(began.Add(over * time.Duration(i) / time.Duration(flows))))
			before(i)
		}
		binary.BigEndian.PutUint32(frame[sourceEnd-4:], uint32(i))
		if err := s.Send(frame); err != nil {
			t.Fatal(err)
		}
	}
}

// protocols are the numbers of the protocols that CSV and tables name.
var protocols = map[string]int{"tcp": 6, "udp": 17}

// readCSV reads rows by the names of their columns.
func readCSV(t *testing.T, text string) []map[string]string {
	t.Helper()
	lines, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var rows []map[string]string
	for i, line := range lines {
		if i == 0 {
			continue
		}
		row := map[string]string{}
		for j, value := range line {
			row[lines[0][j]] = value
		}
		rows = append(rows, row)
	}
	return rows
}
