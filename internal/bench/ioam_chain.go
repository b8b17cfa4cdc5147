package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/bench/program"
	"github.com/waymark-net/waymark/internal/datapath"
	"github.com/waymark-net/waymark/internal/flow"
	inbandioam "github.com/waymark-net/waymark/internal/inband/ioam"
	"github.com/waymark-net/waymark/internal/lab"
	"github.com/waymark-net/waymark/wire/ioam"
)

// IOAMTransit compares the transit nodes of a chain: three routers between two hosts.
type IOAMTransit struct {
	Rounds  int          `json:"rounds"`
	Packets int          `json:"packets"` // of each round
	Fields  string       `json:"fields"`
	Nodes   []TransitWay `json:"nodes"`
}

// TransitWay is one kind of routers.
type TransitWay struct {
	Node   string  `json:"node"`
	Packet Spread  `json:"packet_ns"`          // CPU time of a packet with a trace, from the sender to the receiver
	Added  *Spread `json:"added_ns,omitempty"` // by each of the routers, compared with routers that ignore the trace
	Linux  float64 `json:"of_linux,omitempty"` // the median of Added, divided by that of Linux's own node
}

// Kinds of routers.
const (
	routersPlain = "none"
	routersLinux = "Linux"
	routersFlows = "none, flows counted"
	routersTC    = "Waymark, tc"
	routersXDP   = "Waymark, XDP"
)

// transitNodes is how many routers a chain has.
const transitNodes = 3

// comparedWith names the routers that a node's cost is measured over.
var comparedWith = map[string]string{routersLinux: routersPlain, routersTC: routersFlows, routersXDP: routersFlows}

// transits says how much is sent.
func (cfg Config) transits() IOAMTransit {
	t := IOAMTransit{Rounds: 41, Packets: 50000, Fields: traceKinds[2].fields}
	if cfg.Quick {
		t.Rounds = 11
	}
	return t
}

// measureTransits sends packets with traces through chains of routers, in turns.
func measureTransits(ctx context.Context, t IOAMTransit, progress func(string)) (_ IOAMTransit, err error) {
	var chains []*transitChain
	defer func() {
		for _, c := range chains {
			err = errors.Join(err, c.close())
		}
	}()
	for _, kind := range []string{routersPlain, routersLinux, routersFlows, routersTC, routersXDP} {
		c := &transitChain{kind: kind}
		chains = append(chains, c)
		if err := c.open(); err != nil {
			return t, fmt.Errorf("%s: %w", kind, err)
		}
	}
	for round := range t.Rounds + 1 {
		if round%10 == 0 {
			progress(fmt.Sprintf("transit nodes: round %d of %d", round, t.Rounds))
		}
		for i := range chains {
			if ctx.Err() != nil {
				return t, ctx.Err()
			}
			c := chains[(round+i)%len(chains)]
			ns, err := c.send(t.Packets)
			if err != nil {
				return t, fmt.Errorf("%s: %w", c.kind, err)
			}
			if round > 0 { // the first warms up
				c.values = append(c.values, ns)
			}
		}
	}
	values := map[string][]float64{}
	for _, c := range chains {
		values[c.kind] = c.values
	}
	each := func(a, b float64) float64 { return (a - b) / transitNodes }
	added := func(kind string) (out []float64) {
		for i, v := range values[kind] {
			out = append(out, each(v, values[comparedWith[kind]][i]))
		}
		return out
	}
	for _, c := range chains {
		way := TransitWay{Node: c.kind, Packet: spreadOf(c.values)}
		if comparedWith[c.kind] != "" {
			mine := spreadOf(added(c.kind))
			way.Added, way.Linux = &mine, mine.Median/spreadOf(added(routersLinux)).Median
		}
		t.Nodes = append(t.Nodes, way)
	}
	return t, nil
}

// transitChain is a lab whose routers are of one kind.
type transitChain struct {
	kind      string
	lab       *lab.Lab
	datapaths []*datapath.Datapath
	fd        int              // of alpha's socket, whose packets have a trace
	programs  *ebpf.Collection // the generator
	frame     []byte
	values    []float64
}

// discarded is where packets go that nobody receives: beta discards them.
var discarded = netip.MustParsePrefix("2001:db8:dead::/64")

func (c *transitChain) open() (err error) {
	c.fd = -1
	name := map[string]string{routersPlain: "n", routersLinux: "l", routersFlows: "f", routersTC: "t", routersXDP: "x"}[c.kind]
	if c.lab, err = lab.Up(lab.Config{Topology: "chain", Prefix: transferPrefix(name)}); err != nil {
		return err
	}
	hosts := c.lab.Hosts()
	for i, h := range hosts {
		r := &netlink.Route{Dst: &net.IPNet{IP: discarded.Addr().AsSlice(), Mask: net.CIDRMask(discarded.Bits(), 128)}, Type: unix.RTN_BLACKHOLE}
		if i+1 < len(hosts) {
			r = &netlink.Route{Dst: &net.IPNet{IP: discarded.Addr().AsSlice(), Mask: net.CIDRMask(discarded.Bits(), 128)}, Gw: hosts[i+1].Interfaces[0].Addr6.Addr().AsSlice()}
		}
		if err := h.Do(func() error { return netlink.RouteAdd(r) }); err != nil {
			return fmt.Errorf("adding a route to %s: %w", h.Name, err)
		}
	}
	for i, h := range hosts[1 : 1+transitNodes] {
		var err error
		switch c.kind {
		case routersLinux:
			err = linuxNode(h, i+1)
		case routersFlows, routersTC, routersXDP:
			err = c.waymarkNode(h, i+1)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
	}
	if err := errors.Join(c.loadGenerator(), c.dial()); err != nil {
		return err
	}
	return c.check()
}

// linuxNode makes the kernel of a host a node.
func linuxNode(h *lab.Host, id int) error {
	err := h.Do(func() error {
		set := map[string]int{"ioam6_id": id}
		for n, i := range h.Interfaces {
			set["conf/"+i.Name+"/ioam6_enabled"], set["conf/"+i.Name+"/ioam6_id"] = 1, 10*id+n
		}
		for name, value := range set {
			if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6", name), []byte(strconv.Itoa(value)), 0); err != nil {
				return fmt.Errorf("the kernel has no IOAM node: %w", err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = h.Run(ctx, "ip", "ioam", "namespace", "add", strconv.Itoa(benchSpace), "data", "1")
	return err
}

// waymarkNode runs the programs on a host.
func (c *transitChain) waymarkNode(h *lab.Host, id int) error {
	cfg, table := inbandioam.Config{Time: ioam.POSIX, Transit: inbandioam.TransitTC}, datapath.Config{MaxEntries: 1 << 14}
	if c.kind == routersXDP {
		cfg.Transit = inbandioam.TransitXDP
	}
	node := inbandioam.New(cfg)
	if c.kind != routersFlows {
		table.Stages = []*datapath.Stage{node.Stage(func(string) bool { return true })}
	}
	d := datapath.New(table, slog.New(slog.DiscardHandler))
	if err := d.Open(); err != nil {
		return err
	}
	c.datapaths = append(c.datapaths, d)
	described := inbandioam.Node{ID: uint32(id), Namespaces: []inbandioam.Namespace{{ID: benchSpace, Data: 1}}}
	for n, i := range h.Interfaces {
		described.Interfaces = append(described.Interfaces, inbandioam.Interface{Name: i.Name, ID: uint16(10*id + n), Role: inbandioam.RoleBoth})
	}
	if c.kind != routersFlows {
		if err := node.Apply(described); err != nil {
			return err
		}
	}
	for _, i := range h.Interfaces {
		index, err := indexOf(h, i.Name)
		if err != nil {
			return err
		}
		if _, err := d.Attach(datapath.Target{Iface: flow.NewIface(0, index), Name: i.Name, Do: h.Do}); err != nil {
			return err
		}
	}
	return nil
}

func indexOf(h *lab.Host, name string) (index uint32, err error) {
	err = h.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			index = uint32(l.Attrs().Index)
		}
		return err
	})
	return index, err
}

// addressOf is the link-layer address of an interface.
func addressOf(h *lab.Host, name string) (address net.HardwareAddr, err error) {
	err = h.Do(func() error {
		l, err := netlink.LinkByName(name)
		if err == nil {
			address = l.Attrs().HardwareAddr
		}
		return err
	})
	return address, err
}

// dial opens a socket whose packets all have an empty trace with space for the routers.
func (c *transitChain) dial() error {
	trace, err := ioam.NewTrace(benchSpace, traceKinds[2].kind, transitNodes*traceKinds[2].kind.NodeSize(0))
	if err != nil {
		return err
	}
	header, err := ioam.AppendHeader(nil, 0, trace)
	if err != nil {
		return err
	}
	err = c.lab.Host("alpha").Do(func() (err error) {
		c.fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	if err := unix.SetsockoptString(c.fd, unix.IPPROTO_IPV6, unix.IPV6_HOPOPTS, string(header)); err != nil {
		return fmt.Errorf("setting the Hop-by-Hop header: %w", err)
	}
	return nil
}

// check sends a packet to beta, which has to have passed nodes of this kind.
func (c *transitChain) check() error {
	beta := c.lab.Host("beta")
	var fd int
	to := unix.SockaddrInet6{Addr: beta.Addr6().As16(), Port: 9}
	err := beta.Do(func() (err error) {
		fd, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("opening a socket: %w", err)
	}
	defer unix.Close(fd)
	wait := unix.NsecToTimeval(patience.Nanoseconds())
	if err := errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVHOPOPTS, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait), unix.Bind(fd, &to),
	); err != nil {
		return fmt.Errorf("preparing a socket: %w", err)
	}
	if err := unix.Sendto(c.fd, make([]byte, payload), 0, &to); err != nil {
		return fmt.Errorf("sending a packet with a trace: %w", err)
	}
	control := make([]byte, 512)
	_, n, _, _, err := unix.Recvmsg(fd, make([]byte, payload), control, 0)
	if err != nil {
		return fmt.Errorf("receiving a packet with a trace: %w", err)
	}
	hops, err := hopsIn(control[:n])
	want := transitNodes
	if comparedWith[c.kind] == "" {
		want = 0
	}
	if err != nil || len(hops) != want {
		return fmt.Errorf("a trace has %d hops, not %d (%w)", len(hops), want, errors.Join(err))
	}
	return nil
}

// hopsIn reads the trace in a Hop-by-Hop header, as a socket reports it.
func hopsIn(control []byte) ([]ioam.Hop, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil || len(messages) != 1 || len(messages[0].Data) < 8 {
		return nil, fmt.Errorf("%d control messages: %w", len(messages), errors.Join(err))
	}
	option := messages[0].Data[4:]
	body, err := ioam.DecodeOption(option[:2+int(option[1])])
	if err != nil {
		return nil, err
	}
	trace, ok := body.(*ioam.Trace)
	if !ok {
		return nil, fmt.Errorf("an option of kind %v", body.Kind())
	}
	return trace.Hops()
}

const generatorAgain = "generate_again"

// loadGenerator makes frames at alpha as a driver receives them: packets with an empty trace, for a network that beta
// discards. They pass the chain without a copy, so that XDP costs what it does on network cards.
func (c *transitChain) loadGenerator() error {
	var err error
	if c.frame, _, err = tracedFrame(traceKinds[2].kind, transitNodes); err != nil {
		return err
	}
	alpha, next := c.lab.Host("alpha"), c.lab.Hosts()[1]
	out := alpha.Interfaces[0].Name
	to, err := addressOf(next, next.Interfaces[0].Name)
	if err != nil {
		return err
	}
	copy(c.frame, to)
	copy(c.frame[destinationIPv6:], discarded.Addr().Next().AsSlice())
	index, err := indexOf(alpha, out)
	if err != nil {
		return err
	}
	spec, err := program.Generate()
	if err != nil {
		return err
	}
	var template [24]uint64
	if len(c.frame) < 8*len(template) {
		return fmt.Errorf("a frame of %d bytes is shorter than the template", len(c.frame))
	}
	for i := range template {
		template[i] = binary.NativeEndian.Uint64(c.frame[8*i:])
	}
	if err := spec.Variables["cfg_template"].Set(template); err != nil {
		return err
	}
	if err := spec.Variables["cfg_ifindex"].Set(index); err != nil {
		return err
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return name != generatorAgain })
	if c.programs, err = ebpf.NewCollection(spec); err != nil {
		return fmt.Errorf("loading the generator: %w", err)
	}
	// Frames that are redirected to veth need NAPI at the other end.
	return c.lab.SetOffloads(lab.GRO, true)
}

// send returns the CPU time of a packet: the kernel forwards it in the thread that sends.
func (c *transitChain) send(n int) (float64, error) {
	var took time.Duration
	err := onProcessor(senderProcessor, func() error {
		alpha, err := netns.GetFromName(c.lab.Host("alpha").Netns)
		if err != nil {
			return fmt.Errorf("opening the network namespace of alpha: %w", err)
		}
		defer alpha.Close()
		if err := netns.Set(alpha); err != nil {
			return fmt.Errorf("entering the network namespace of alpha: %w", err)
		}
		took, err = sendLive(c.programs.Programs[generatorAgain], c.frame, n)
		return err
	})
	return float64(took) / float64(n), err
}

func (c *transitChain) close() error {
	if c.fd >= 0 {
		unix.Close(c.fd)
	}
	if c.programs != nil {
		c.programs.Close()
	}
	for _, d := range c.datapaths {
		d.Close()
	}
	if c.lab == nil {
		return nil
	}
	return c.lab.Down()
}
