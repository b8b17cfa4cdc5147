package forward

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// neighbourEvents are where the kernel has changed a neighbour: on news of it, by its timer, and as it is forgotten.
var neighbourEvents = []string{"neigh_update_done", "neigh_timer_handler", "neigh_cleanup_and_release"}

// neighbours has the programs know that neighbours change, as long as they are open.
type neighbours []io.Closer

// open counts in the programs' memory from now on.
func (n *neighbours) open(memory *ebpf.Map) (err error) {
	spec, err := loadNeighbour()
	if err != nil {
		return fmt.Errorf("reading the built-in object neighbour.bpf.c: %w", err)
	}
	coll, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: map[string]*ebpf.Map{"forward_memory": memory}})
	if err != nil {
		return fmt.Errorf("loading the program that counts changes of neighbours: %w", err)
	}
	defer coll.Close()
	for _, event := range neighbourEvents {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: event, Program: coll.Programs["waymark_neighbour"]})
		if err != nil {
			return errors.Join(fmt.Errorf("tracepoint %s: %w", event, err), n.close())
		}
		*n = append(*n, l)
	}
	return nil
}

func (n *neighbours) close() error {
	var errs []error
	for _, l := range *n {
		errs = append(errs, l.Close())
	}
	*n = nil
	return errors.Join(errs...)
}
