package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/offline"
)

// Whatever a packet holds, decode ends without an error, and what it prints is JSON or
// CSV with as many fields in each row.
func FuzzDecodeOutput(f *testing.F) {
	seed := journey(f)
	r, err := pcapgo.NewReader(bytes.NewReader(seed.buf.Bytes()))
	if err != nil {
		f.Fatal(err)
	}
	for {
		frame, _, err := r.ReadPacketData()
		if err != nil {
			break
		}
		f.Add(frame[etherSize:])
	}
	f.Fuzz(func(t *testing.T, pkt []byte) {
		var file bytes.Buffer
		w := pcapgo.NewWriterNanos(&file)
		info := gopacket.CaptureInfo{Timestamp: captureStart, CaptureLength: len(pkt), Length: len(pkt)}
		if err := w.WriteFileHeader(65536, layers.LinkTypeIPv6); err != nil {
			t.Fatal(err)
		}
		if err := w.WritePacket(info, pkt); err != nil {
			t.Fatal(err)
		}
		for _, format := range []string{outputJSON, outputCSV, outputTable} {
			got := printed(t, format, decodeShow{packets: format != outputCSV, ioam: true, flows: format != outputCSV}, file.Bytes())
			switch format {
			case outputJSON:
				if !json.Valid(got) {
					t.Fatalf("not JSON: %s", got)
				}
			case outputCSV:
				if _, err := csv.NewReader(bytes.NewReader(got)).ReadAll(); err != nil {
					t.Fatalf("%v: %s", err, got)
				}
			}
		}
	})
}

// printed is what decode prints of a file, without the command around it.
func printed(t *testing.T, format string, show decodeShow, file []byte) []byte {
	r, err := capfile.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := bufio.NewWriter(&buf)
	out, table := newDecodePrinter(w, format, show), offline.NewTable()
	sum, err := offline.Scan(r, table, func(*offline.Packet) bool { return true }, func(p *offline.Packet, o inband.Observation) error {
		if packet, options := show.wants(p); !packet && !options {
			return nil
		}
		return out.packet(p, o)
	})
	if err := errors.Join(err, out.end(table, sum), w.Flush()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}
