// Package vm runs programs on older kernels: it boots one of Debian's in QEMU, without KVM, from an initramfs made
// on the spot, and is through in seconds.
//
// In: a [Machine], which names a kernel, files of the host and commands. Out: what each command printed and how it
// ended. Tests call [Run]; `make setup` fetches the kernels.
package vm

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/waymark-net/waymark/test/vm/internal/protocol"
)

// Cmd is one program run in the guest as root.
type Cmd = protocol.Cmd

// Machine is a guest and what it does between boot and power-off.
type Machine struct {
	// Kernel is one that `scripts/fetch-kernel` brought, such as "6.1".
	Kernel string
	// Memory in MiB; 0 is 1024.
	Memory int
	// CPUs; 0 is 2.
	CPUs int
	// Modules are loaded before the first command, with all they need; nil is [DefaultModules].
	Modules []string
	// Files maps a path in the guest to a file or folder of the host. Programs must be static: see [Build].
	Files map[string]string
	// Cmds run one after another.
	Cmds []Cmd
	// Timeout is for boot and all commands; 0 is ten minutes.
	Timeout time.Duration
}

// DefaultModules is what a flow probe's test needs that Debian does not build in. There is no modprobe in the
// guest, so the kernel cannot fetch them by itself.
var DefaultModules = []string{
	"veth", "sch_ingress", "cls_bpf", "8021q", "dummy", "tun",
	"vxlan", "geneve", "ip_gre", "ip6_gre", "ipip", "ip6_tunnel", "sit",
}

// Report is what a machine left.
type Report struct {
	// Release is the kernel's, as `uname -r` prints it.
	Release string
	// CPUs is how many were online.
	CPUs int
	// Results has one entry for each of Machine.Cmds, in that order.
	Results []Result
	// Console is all that the kernel and process 1 printed.
	Console string
	// Took is from QEMU's start to its end.
	Took time.Duration
}

// Result is how a command ended.
type Result struct {
	Stdout, Stderr string
	// ExitCode is -1 when a signal ended the command or it never started; Error then says why.
	ExitCode int
	Error    string
	// Took by the guest's clock.
	Took time.Duration
}

// Run boots the machine, runs its commands and switches it off. It ends the test, with the console's log, when the
// machine did not come through; a command that failed is the caller's to judge.
func Run(t testing.TB, m Machine) *Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(m.Timeout, 10*time.Minute))
	defer cancel()
	report, err := m.run(ctx, t.TempDir(), Build(t, guestPackage))
	if err != nil {
		t.Fatalf("test machine with kernel %s: %v\n%s", m.Kernel, err, report.log())
	}
	return report
}

const (
	guestPackage = "github.com/waymark-net/waymark/test/vm/guest"
	// guestModules is the folder of kernel modules in the guest.
	guestModules = "/modules"
)

func (m Machine) run(ctx context.Context, dir, guest string) (*Report, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	k, err := findKernel(root, m.Kernel)
	if err != nil {
		return nil, err
	}
	initramfs := filepath.Join(dir, "initramfs.cpio")
	if err := m.pack(initramfs, guest, k); err != nil {
		return nil, err
	}
	console, events := filepath.Join(dir, "console"), filepath.Join(dir, "events")
	start := time.Now()
	qemuErr := m.boot(ctx, k.image, initramfs, console, events)

	report := &Report{Results: make([]Result, len(m.Cmds)), Took: time.Since(start)}
	log, err := os.ReadFile(console)
	if err != nil && qemuErr == nil {
		return nil, fmt.Errorf("read the console's log: %w", err)
	}
	report.Console = string(log)
	if qemuErr != nil {
		// What was said until then helps to see where it hangs.
		return report, errors.Join(qemuErr, report.read(events))
	}
	return report, report.read(events)
}

// pack writes the initramfs.
func (m Machine) pack(file, guest string, k *kernel) error {
	names := m.Modules
	if names == nil {
		names = DefaultModules
	}
	names, err := k.modules.order(names)
	if err != nil {
		return err
	}
	job := protocol.Job{Cmds: m.Cmds}
	for _, name := range names {
		job.Modules = append(job.Modules, path.Join(guestModules, name+".ko"))
	}
	raw, err := json.Marshal(job)
	if err != nil {
		return fmt.Errorf("encode the job: %w", err)
	}

	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("make the initramfs: %w", err)
	}
	defer f.Close()
	a := newArchive(f)
	// What a Go program needs before devtmpfs is mounted.
	a.node("/dev/console", 5, 1)
	a.node("/dev/null", 1, 3)
	a.copy("/init", guest)
	a.bytes(protocol.JobPath, 0o644, string(raw))
	for _, name := range names {
		a.copy(path.Join(guestModules, name+".ko"), k.modules[name])
	}
	for name, host := range m.Files {
		a.copy(path.Clean("/"+name), host)
	}
	if err := a.close(); err != nil {
		return err
	}
	return f.Close()
}

// commandLine is the kernel's. A panic, and process 1's restart, end the machine at once. The rest saves time:
// random.trust_cpu the wait for entropy, mitigations and init_on_alloc a defence where no one attacks,
// rcu_expedited most of each grace period, and tsc=reliable, which QEMU's is, an exit for each reading of a clock.
// no_timer_check: on a busy host the check panics, because ticks come late.
const commandLine = "console=ttyS0 quiet panic=-1 oops=panic reboot=t " +
	"random.trust_cpu=on mitigations=off init_on_alloc=0 rcupdate.rcu_expedited=1 tsc=reliable no_timer_check"

// boot runs QEMU until the guest restarts, which with -no-reboot ends it.
func (m Machine) boot(ctx context.Context, image, initramfs, console, events string) error {
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		// One thread for all processors takes a fifth less CPU time than one each: they do not wait for each other's locks.
		"-machine", "q35", "-accel", "tcg,thread=single",
		// Where string instructions are fast, the kernel copies by them; QEMU emulates them byte by
		// byte. Without, loading a program takes half as long. A fifth level of page tables, and turning the kernel's access
		// to user space on and off, cost emulation time and no test needs them.
		"-cpu", "max,-erms,-la57,-smap,-smep",
		"-smp", strconv.Itoa(cmp.Or(m.CPUs, 2)), "-m", strconv.Itoa(cmp.Or(m.Memory, 1024)),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:"+console, "-serial", "file:"+events,
		"-kernel", image, "-initrd", initramfs,
		"-append", commandLine+clockOption())
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// A test that is killed takes its machine along. The signal comes when the thread ends that
	// started QEMU, so that must not happen earlier.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%w; run 'make setup'", err)
	case ctx.Err() != nil:
		return fmt.Errorf("not through in time: %w\n%s", ctx.Err(), said.Bytes())
	case err != nil:
		return fmt.Errorf("qemu: %w\n%s", err, said.Bytes())
	}
	return nil
}

// read puts the events together; an error says how far the guest came.
func (r *Report) read(events string) error {
	f, err := os.Open(events)
	if err != nil {
		return fmt.Errorf("read the guest's events: %w", err)
	}
	defer f.Close()
	ended := 0
	for dec := json.NewDecoder(f); ; {
		var ev protocol.Event
		if err := dec.Decode(&ev); err != nil {
			return fmt.Errorf("the guest stopped after %d of %d commands: %w", ended, len(r.Results), err)
		}
		switch {
		case ev.Boot != nil:
			r.Release, r.CPUs = ev.Boot.Release, ev.Boot.CPUs
		case ev.Output != nil && ev.Output.FD == 1:
			r.Results[ev.Output.Cmd].Stdout += string(ev.Output.Data)
		case ev.Output != nil:
			r.Results[ev.Output.Cmd].Stderr += string(ev.Output.Data)
		case ev.Exit != nil:
			res := &r.Results[ev.Exit.Cmd]
			res.ExitCode, res.Error, res.Took = ev.Exit.Code, ev.Exit.Error, ev.Exit.Took
			ended++
		case ev.Fail != "":
			return fmt.Errorf("the guest failed: %s", ev.Fail)
		case ev.End:
			return nil
		}
	}
}

// log is everything a person needs to see why a machine did not come through.
func (r *Report) log() string {
	if r == nil {
		return ""
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "--- console, %v\n%s\n", r.Took.Round(time.Millisecond), r.Console)
	for i, res := range r.Results {
		fmt.Fprintf(&b, "--- command %d: exit code %d %s\n%s%s", i, res.ExitCode, res.Error, res.Stdout, res.Stderr)
	}
	return b.String()
}
