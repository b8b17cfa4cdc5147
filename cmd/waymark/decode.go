package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/command"
	"github.com/waymark-net/waymark/internal/inband"
	"github.com/waymark-net/waymark/internal/inband/offline"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/wire/ioam"
)

// newDecodeCommand is waymark decode FILE.
func newDecodeCommand() *cobra.Command {
	d := &decodeCommand{}
	c := &cobra.Command{
		Use:   "decode FILE",
		Short: "Show PDM and IOAM in a capture, and the delays computed from PDM",
		Long: `Decode reads a pcap or pcapng file, plain or compressed with gzip, and shows the PDM
option (RFC 8250) of every packet that carries one. For each flow it computes the
server delay, the network round trip (between the ends, and from the capture point to
each end), and how many packets were lost, reordered and duplicated before the capture
point. It also shows IOAM options (RFC 9197, RFC 9326): the hops of a trace in the order
in which the packet passed them, and everything that is wrong with an option. FILE - is
stdin.`,
		Example: `  waymark decode trace.pcapng
  waymark decode --show ioam -o csv trace.pcapng
  waymark decode --show flows --host 2001:db8::1 --port 443 trace.pcapng
  tcpdump -i eth0 -w - ip6 | waymark decode -o jsonl -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return d.run(cmd, args[0]) },
	}
	d.output.register(c, outputTable, outputJSON, outputJSONL, outputCSV)
	c.Flags().StringSliceVar(&d.show, "show", nil, "show packets (with PDM), ioam, flows or several of them (default: all; packets with -o csv)")
	c.Flags().StringVar(&d.format, "ioam-time", ioam.POSIX.String(), "format of the times in IOAM options: ptp, ntp or posix, which Linux writes")
	c.Flags().StringArrayVar(&d.hosts, "host", nil, "only packets from or to this address or prefix; given twice: between the two")
	c.Flags().StringArrayVar(&d.ports, "port", nil, "only packets from or to this port; given twice: between the two")
	c.Flags().StringVar(&d.proto, "proto", "", "only packets of this protocol: tcp, udp, icmpv6, sctp, or a number")
	return c
}

type decodeCommand struct {
	output outputFlag
	show   []string
	hosts  []string
	ports  []string
	proto  string
	format string // of times in IOAM options
}

func (d *decodeCommand) run(cmd *cobra.Command, name string) error {
	keep, err := d.filter()
	if err != nil {
		return err
	}
	show, err := d.shown()
	if err != nil {
		return err
	}
	r, closeFile, err := openCapture(name, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer closeFile()

	w := bufio.NewWriterSize(cmd.OutOrStdout(), 1<<16)
	out := newDecodePrinter(w, d.output.format, show)
	table := offline.NewTable()
	sum, failed := offline.Scan(r, table, keep, func(p *offline.Packet, o inband.Observation) error {
		if packet, options := show.wants(p); !packet && !options {
			return nil
		}
		if err := out.packet(p, o); err != nil || name != "-" {
			return err
		}
		return w.Flush() // somebody may be watching
	})
	if sum.UnknownLink > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "waymark: %s skipped: unknown link type\n", term.Number(sum.UnknownLink, "frames"))
	}
	if show.flows && sum.FlowsDropped > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "waymark: %s with %s not shown: the table of flows was full, and the oldest were dropped; select fewer with --host, --port or --proto\n",
			term.Number(sum.FlowsDropped, "flows"), term.Number(sum.PacketsDropped, "packets"))
	}
	// What was read before an error is worth showing.
	err = out.end(table, sum)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return fmt.Errorf("write the contents of %s: %w", name, err)
	}
	if failed != nil {
		return captureError(name, failed)
	}
	return nil
}

// shown says what to print.
func (d *decodeCommand) shown() (decodeShow, error) {
	format, err := ioam.ParseTimeFormat(d.format)
	if err != nil {
		return decodeShow{}, command.UsageErrorf("--ioam-time %s: want ptp, ntp or posix", d.format)
	}
	show, n := decodeShow{format: format}, 0
	for name, is := range map[string]*bool{"packets": &show.packets, "ioam": &show.ioam, "flows": &show.flows} {
		if *is = slices.Contains(d.show, name); *is {
			n++
		}
	}
	for _, s := range d.show {
		if s != "packets" && s != "ioam" && s != "flows" {
			return decodeShow{}, command.UsageErrorf("--show %s: want packets, ioam or flows", s)
		}
	}
	csv := d.output.format == outputCSV
	switch {
	case len(d.show) == 0:
		show.packets, show.ioam, show.flows = true, !csv, !csv
	case n > 1 && csv:
		return decodeShow{}, command.UsageErrorf("-o csv shows one table: use --show packets, --show ioam or --show flows")
	}
	return show, nil
}

// openCapture opens a file, or takes stdin for -.
func openCapture(name string, stdin io.Reader) (r *capfile.Reader, done func(), err error) {
	in, done := stdin, func() {}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, nil, fmt.Errorf("open capture: %w", err)
		}
		in, done = f, func() { _ = f.Close() } // only read from: closing loses nothing
	}
	if r, err = capfile.NewReader(in); err != nil {
		done()
		return nil, nil, captureError(name, err)
	}
	return r, done, nil
}

// captureError says what a user can do about a bad file.
func captureError(name string, err error) error {
	var bad *capfile.Error
	switch {
	case !errors.As(err, &bad):
		return fmt.Errorf("decode %s: %w", name, err)
	case errors.Is(err, capfile.ErrFormat):
		return fmt.Errorf("decode %s: %w; capture with tcpdump -w or save as pcapng", name, err)
	case errors.Is(err, io.ErrUnexpectedEOF) && bad.Frame > 0:
		return fmt.Errorf("decode %s: %w: the file is truncated; everything before was decoded", name, err)
	case bad.Frame > 0:
		return fmt.Errorf("decode %s: %w; everything before was decoded", name, err)
	}
	return fmt.Errorf("decode %s: %w", name, err)
}

// filter makes a predicate of the flags. A packet must have every host and port
// that was named on one of its ends.
func (d *decodeCommand) filter() (func(*offline.Packet) bool, error) {
	var hosts []netip.Prefix
	for _, s := range d.hosts {
		h, err := parseHost(s)
		if err != nil {
			return nil, command.UsageErrorf("--host %s: %w", s, err)
		}
		hosts = append(hosts, h)
	}
	var ports []uint16
	for _, s := range d.ports {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return nil, command.UsageErrorf("--port %s: want a number up to 65535", s)
		}
		ports = append(ports, uint16(n))
	}
	proto, anyProto, err := parseProto(d.proto)
	if err != nil {
		return nil, command.UsageErrorf("--proto %s: %w", d.proto, err)
	}
	return func(p *offline.Packet) bool {
		for _, h := range hosts {
			if !h.Contains(p.Src.Addr()) && !h.Contains(p.Dst.Addr()) {
				return false
			}
		}
		for _, port := range ports {
			if p.Src.Port() != port && p.Dst.Port() != port {
				return false
			}
		}
		return anyProto || p.Proto == proto
	}, nil
}

// parseHost takes an IPv6 address or prefix.
func parseHost(s string) (netip.Prefix, error) {
	if !strings.Contains(s, "/") {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return netip.Prefix{}, fmt.Errorf("want an IPv6 address or prefix: %w", err)
		}
		s = fmt.Sprintf("%s/%d", a.WithZone(""), a.BitLen())
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("want an IPv6 address or prefix: %w", err)
	}
	if p.Addr().Is4() {
		return netip.Prefix{}, errors.New("this is IPv4, and PDM and IOAM are options of IPv6")
	}
	return p, nil
}

// protoNames are those of the protocols that --proto knows and tables show.
var protoNames = map[uint8]string{6: "tcp", 17: "udp", 33: "dccp", 50: "esp", 58: "icmpv6", 132: "sctp", 136: "udplite"}

func protoName(proto uint8) string {
	if name, ok := protoNames[proto]; ok {
		return name
	}
	return strconv.Itoa(int(proto))
}

func parseProto(s string) (proto uint8, anyProto bool, err error) {
	if s == "" {
		return 0, true, nil
	}
	for proto, name := range protoNames {
		if s == name {
			return proto, false, nil
		}
	}
	n, err := strconv.ParseUint(s, 10, 8)
	if err != nil {
		return 0, false, errors.New("want tcp, udp, icmpv6, sctp, or a number up to 255")
	}
	return uint8(n), false, nil
}
