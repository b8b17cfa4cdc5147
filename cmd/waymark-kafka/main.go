// Command waymark-kafka sends what an agent counted to Kafka. The exporter kafka of the agent runs it. Input: messages of package pipe,
// on standard input. Output: answers, on standard output. It ends when its input does.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"

	"github.com/waymark-net/waymark/internal/export/kafka/pipe"
	"github.com/waymark-net/waymark/internal/export/kafka/producer"
)

// memory is what the program should take at most, in bytes: an agent has little.
const memory = 96 << 20

func main() {
	if len(os.Args) > 1 {
		fmt.Fprintln(os.Stderr, "waymark-kafka: the exporter kafka of waymark runs this program, which has no arguments: see waymark.yaml(5)")
		os.Exit(2)
	}
	// An agent that stops closes the pipe when the last interval is sent; the signal may come to both.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	debug.SetMemoryLimit(memory)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "waymark-kafka:", err)
		os.Exit(1)
	}
}

func run() error {
	if err := dropPrivileges(); err != nil {
		return err
	}
	return producer.New(pipe.SocketFile).Run(os.Stdin, os.Stdout)
}

// dropPrivileges gives up every capability that the agent had, and what a program could get back.
func dropPrivileges() error {
	if err := cap.NewSet().SetProc(); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	return nil
}
