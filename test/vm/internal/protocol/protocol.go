// Package protocol is what the host and the guest of a test machine say to each other.
//
// In: the [Job] that package vm writes into the initramfs, and the commands' output that the guest sees. Out: the
// guest's [Event] values, one JSON object a line, on a serial port of their own where no kernel message interleaves.
package protocol

import "time"

const (
	// JobPath is where the guest finds its job in the initramfs.
	JobPath = "/job.json"
	// EventPort is the guest's serial port for events; the first one is the kernel's console.
	EventPort = "/dev/ttyS1"
)

// Job is all that a guest does between boot and power-off.
type Job struct {
	// Modules are paths of uncompressed kernel modules, each after the ones it needs.
	Modules []string `json:"modules"`
	// Cmds run one after another; one that fails does not stop the next.
	Cmds []Cmd `json:"cmds"`
}

// Cmd is one program run in the guest as root.
type Cmd struct {
	// Args is the program's path in the guest and its arguments.
	Args []string `json:"args"`
	// Env is added to PATH, HOME and TMPDIR, which are always set.
	Env []string `json:"env,omitempty"`
	// Dir is the working directory; empty is the root.
	Dir string `json:"dir,omitempty"`
	// Timeout ends the program by SIGKILL; 0 leaves it to the machine's own.
	Timeout time.Duration `json:"timeout,omitempty"`
}

// Event is one thing that happened in the guest; exactly one field is set.
type Event struct {
	Boot   *Boot   `json:"boot,omitempty"`
	Output *Output `json:"output,omitempty"`
	Exit   *Exit   `json:"exit,omitempty"`
	// Fail ends the job before its commands are done: the guest could not be set up.
	Fail string `json:"fail,omitempty"`
	// End says that every command ran; a machine that stops without it crashed.
	End bool `json:"end,omitempty"`
}

// Boot is said once the guest is ready for its first command.
type Boot struct {
	// Release is the kernel's, as `uname -r` prints it.
	Release string `json:"release"`
	// CPUs is how many are online.
	CPUs int `json:"cpus"`
}

// Output is a piece of what a command wrote.
type Output struct {
	Cmd int `json:"cmd"`
	// FD is 1 or 2.
	FD   int    `json:"fd"`
	Data []byte `json:"data"`
}

// Exit is the end of a command.
type Exit struct {
	Cmd int `json:"cmd"`
	// Code is -1 when a signal ended the command or it never started; Error then says why.
	Code  int           `json:"code"`
	Error string        `json:"error,omitempty"`
	Took  time.Duration `json:"took"`
}
