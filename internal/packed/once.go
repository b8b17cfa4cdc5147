package packed

import (
	"sync"

	"github.com/cilium/ebpf"
)

// Once reads an object once, and gives each caller a copy. Tests use it, which load the same programs dozens of times:
// to read an object takes as long as the verifier takes for a small program.
func Once(load func() (*ebpf.CollectionSpec, error)) func() (*ebpf.CollectionSpec, error) {
	read := sync.OnceValues(load)
	return func() (*ebpf.CollectionSpec, error) {
		spec, err := read()
		if err != nil {
			return nil, err
		}
		return spec.Copy(), nil
	}
}
