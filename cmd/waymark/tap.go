package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/waymark-net/waymark/internal/capfile"
	"github.com/waymark-net/waymark/internal/command"
	gate "github.com/waymark-net/waymark/internal/gate/service"
	hints "github.com/waymark-net/waymark/internal/hints/service"
	"github.com/waymark-net/waymark/internal/obs"
	"github.com/waymark-net/waymark/internal/term"
	"github.com/waymark-net/waymark/tap"
)

// tapCommand writes what tap rules select to a file.
type tapCommand struct {
	agent agentFlag
	file  string
	count uint64
	snap  uint32
	cfg   tap.Config

	mu      sync.Mutex // queues have a goroutine each; guards all below
	ng      *capfile.Writer
	buffer  *bufio.Writer
	packets uint64
	boot    time.Duration // wall clock less CLOCK_MONOTONIC
	failed  error         // why no packets will come any more
}

func newTapCommand() *cobra.Command {
	c := &tapCommand{}
	cmd := &cobra.Command{
		Use:   "tap IFACE",
		Short: "Take packets off an interface, through AF_XDP, to a pcapng file",
		Long: `Tap takes the packets that tap rules of the gate select off an interface before the network
stack, and writes them to a pcapng file, each with its receive time and queue. The kernel copies
a frame once; where the driver can, not at all.

A packet that is taken does not reach the stack: use tap rules for traffic that is not for this
host, as on a mirror port, or that it can do without; for all other traffic there is waymark capture.
While nobody taps, when this command ends or is killed, and for each packet for which it has no
space, the packet goes on as if there was no tap rule.

The interface has to be in hints.metadata, with hints.sockets: tapped, and its packets have to
meet the rules at XDP (gate.interfaces, gate.mode: native). It has to be in the network namespace of
this command. At the end it reports what became of selected packets, by queue. Only root may tap.`,
		Example: `  waymark tap eth1 -w mirrored.pcapng
  waymark tap eth1 -c 1000 -w - | tshark -r -`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&c.file, "write", "w", "", "write a pcapng `FILE`; - is stdout")
	flags.Uint64VarP(&c.count, "count", "c", 0, "end after `N` packets; 0: when interrupted")
	flags.Uint32VarP(&c.snap, "snaplen", "s", 1<<16, "keep the first `BYTES` of each packet")
	flags.IntVar(&c.cfg.Buffers, "buffers", 4096, "have `N` buffers of 4 KiB for each queue")
	flags.BoolVar(&c.cfg.Copy, "copy", false, "have the kernel copy frames, even where the driver could do without")
	c.agent.register(cmd)
	return cmd
}

// find asks the agent where sockets are registered, and refuses where the stack would lose packets, or nothing would come.
func (c *tapCommand) find(ctx context.Context, iface string) (cfg tap.Config, err error) {
	s, err := c.agent.client().Status(ctx)
	if err != nil {
		return cfg, err
	}
	var found *hints.Passed
	if h := hints.StatusOf(&s); h != nil {
		for i := range h.Metadata {
			if h.Metadata[i].Iface == iface && h.Metadata[i].Netns == "" {
				found = &h.Metadata[i]
			}
		}
	}
	switch {
	case found == nil:
		return cfg, fmt.Errorf("tap: the agent leaves no metadata at %s: add it to hints.metadata, with hints.sockets: tapped, and to interfaces", iface)
	case found.SocketMap == 0:
		return cfg, fmt.Errorf("tap: this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)")
	case !found.Tapped:
		return cfg, fmt.Errorf("tap: hints.sockets is all, so the stack would get no packets of %s any more: set hints.sockets: tapped", iface)
	}
	if err := tapRules(&s, iface); err != nil {
		return cfg, err
	}
	cfg = c.cfg
	cfg.Interface, cfg.SocketMap, cfg.QueueMap, cfg.FirstQueue = iface, found.SocketMap, found.QueueMap, found.FirstQueue
	return cfg, nil
}

// tapRules is an error where no packet of an interface meets rules at XDP.
func tapRules(s *obs.Status, iface string) error {
	if g := gate.StatusOf(s); g != nil {
		for _, i := range g.Interfaces {
			if i.Name != iface || i.Netns != "" {
				continue
			}
			if i.Hook == "tc" || i.Hook == "none" {
				return fmt.Errorf("tap: packets of %s meet the rules at tc, where none can be taken: set gate.mode: native", iface)
			}
			return nil
		}
	}
	return fmt.Errorf("tap: packets of %s meet no rules: add it to gate.interfaces, and a rule such as tap udp dst port 4789", iface)
}

func (c *tapCommand) run(cmd *cobra.Command, iface string) (err error) {
	if c.file == "" {
		return command.UsageErrorf("tap: name the file to write: -w FILE, or -w - for stdout")
	}
	if c.snap == 0 || c.cfg.Buffers < 64 || c.cfg.Buffers > tap.MaxBuffers {
		return command.UsageErrorf("tap: want --snaplen of at least 1, and --buffers of 64 to %d", tap.MaxBuffers)
	}
	ctx, release := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer release()
	if c.cfg, err = c.find(ctx, iface); err != nil {
		return err
	}
	out, err := c.create(cmd.OutOrStdout())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	t, err := tap.Open(c.cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	if err := c.begin(out); err != nil {
		return err
	}
	defer func() {
		if err == nil { // otherwise it may be known
			err = c.buffer.Flush()
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	var followed sync.WaitGroup
	followed.Go(func() { c.follow(ctx, cancel, cmd.ErrOrStderr()) })
	err = t.Receive(ctx, c.take)
	cancel()
	followed.Wait()
	if errors.Is(err, errEnough) {
		err = nil
	}
	return errors.Join(err, c.failed, c.finish(cmd.ErrOrStderr(), t))
}

// create finds out whether the file can be written. What is in it stays until packets can come: another tap may write it.
func (c *tapCommand) create(stdout io.Writer) (io.WriteCloser, error) {
	if c.file != "-" {
		return os.OpenFile(c.file, os.O_CREATE|os.O_WRONLY, 0o600)
	}
	if term.IsTerminal(stdout) {
		return nil, command.UsageErrorf("tap: -w - would write a pcapng file to the terminal: name a file, or pipe it")
	}
	return nopCloser{stdout}, nil
}

// begin writes the file's head.
func (c *tapCommand) begin(out io.Writer) (err error) {
	if f, ok := out.(*os.File); ok {
		if err := f.Truncate(0); err != nil && !errors.Is(err, syscall.EINVAL) { // a pipe or device has no length
			return err
		}
	}
	c.buffer = bufio.NewWriterSize(out, 1<<20)
	if c.ng, err = capfile.NewWriter(c.buffer, "waymark "+readVersion().Version); err == nil {
		_, err = c.ng.Add(capfile.Interface{Name: c.cfg.Interface, Link: capfile.LinkEthernet, Snap: c.snap})
	}
	if err == nil {
		err = c.buffer.Flush() // readers may begin
	}
	c.sync()
	return err
}

// follow lets readers see what was written, follows steps of the clock, and notices that no packets will come any more: another
// agent has programs of its own. One that is gone may have left its programs.
func (c *tapCommand) follow(ctx context.Context, end func(), stderr io.Writer) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	warned, before := false, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		_ = c.buffer.Flush() // the next write reports it
		c.sync()
		idle := c.packets == before
		before = c.packets
		c.mu.Unlock()
		if !idle {
			continue
		}
		switch now, err := c.find(ctx, c.cfg.Interface); {
		case ctx.Err() != nil:
			return
		case err != nil && !warned:
			fmt.Fprintf(stderr, "no packets come: %v\n", err)
			warned = true
		case err == nil && now != c.cfg:
			c.failed = errors.New("tap: the agent has restarted: start the tap again, too")
			end()
			return
		}
	}
}

// sync compares the clocks.
func (c *tapCommand) sync() {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) == nil {
		c.boot = time.Duration(time.Now().UnixNano() - now.Nano())
	}
}

// xdpRedirect is what the program decides of packets that are taken.
const xdpRedirect = 4

// take writes a frame.
func (c *tapCommand) take(f *tap.Frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count > 0 && c.packets == c.count {
		return errEnough // of another queue
	}
	at, data := time.Now(), f.Data
	if f.Known && f.TimeSource != tap.Absent {
		at = time.Unix(0, int64(f.Time)+int64(c.boot))
	}
	if f.Known && (f.VLANSource == tap.Hardware || f.VLANSource == tap.Driver) {
		data = withTag(data, f.VLANProto, f.VLANTCI)
	}
	c.packets++
	if err := c.ng.Write(&capfile.Packet{
		Frame: capfile.Frame{
			Number: int(c.packets), Time: at, Data: data[:min(len(data), int(c.snap))], Length: len(data), Direction: capfile.Inbound,
		},
		Queue: uint32(f.Queue), Verdict: capfile.Verdict{Kind: capfile.VerdictXDP, Value: xdpRedirect},
	}); err != nil {
		return err
	}
	if c.packets == c.count {
		return errEnough
	}
	return nil
}

// withTag is a frame with a VLAN tag that was taken out of it.
func withTag(frame []byte, proto, tci uint16) []byte {
	const addresses = 12
	if len(frame) < addresses {
		return frame
	}
	tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, proto), tci)
	return append(append(append([]byte(nil), frame[:addresses]...), tag...), frame[addresses:]...)
}

// finish reports what became of selected packets.
func (c *tapCommand) finish(w io.Writer, t *tap.Tap) error {
	stats, err := t.Stats()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s written\n", term.Number(c.packets, "packets"))
	table := term.Table{Columns: []term.Column{
		{Title: "QUEUE", Right: true},
		{Title: "MODE"},
		{Title: "JUMBO"},
		{Title: "BUFFERS", Right: true},
		{Title: "NO SPACE", Right: true},
		{Title: "TOO LONG", Right: true},
		{Title: "DROPPED", Right: true},
		{Title: "RING FULL", Right: true},
		{Title: "FILL EMPTY", Right: true},
	}}
	for _, s := range stats {
		mode, jumbo := "copy", "no"
		if s.ZeroCopy {
			mode = "zero copy"
		}
		if s.Parts {
			jumbo = "yes"
		}
		table.Add(fmt.Sprint(s.Queue), mode, jumbo, term.Count(s.Buffers), term.Count(s.Full), term.Count(s.TooLong),
			term.Count(s.Dropped), term.Count(s.RingFull), term.Count(s.FillEmpty))
	}
	return term.Section(w, &table)
}
