package datapath

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/waymark-net/waymark/internal/flow"
)

// Spec is an object before it is loaded.
type Spec struct {
	*ebpf.CollectionSpec
	Object string // for errors
	// NoLinkHeader: frames begin with the IP header.
	NoLinkHeader bool
	// Features is cfg_features: bits of enum feature. Stages may add some.
	Features uint32
	// Bound is the interface that the copy is bound to, and Device its index; 0: none.
	Bound  flow.Iface
	Device uint32
}

// Enable adds a feature by its name in enum feature.
func (s *Spec) Enable(feature string) error {
	bit, err := s.featureBit(feature)
	s.Features |= bit
	return err
}

// SetMaxEntries sets the size of a map.
func (s *Spec) SetMaxEntries(name string, n uint32) error {
	m := s.Maps[name]
	if m == nil {
		return fmt.Errorf("object %s has no map %s", s.Object, name)
	}
	m.MaxEntries = n
	return nil
}

// SetSizes sets the sizes of several maps.
func (s *Spec) SetSizes(sizes map[string]uint32) error {
	for name, n := range sizes {
		if err := s.SetMaxEntries(name, n); err != nil {
			return err
		}
	}
	return nil
}

// SetConstant sets a const volatile.
func (s *Spec) SetConstant(name string, value any) error {
	v := s.Variables[name]
	if v == nil {
		return fmt.Errorf("object %s has no constant %s", s.Object, name)
	}
	if err := v.Set(value); err != nil {
		return fmt.Errorf("object %s, constant %s: %w", s.Object, name, err)
	}
	return nil
}

// SetConstants sets several.
func (s *Spec) SetConstants(values map[string]any) error {
	for name, value := range values {
		if err := s.SetConstant(name, value); err != nil {
			return err
		}
	}
	return nil
}
