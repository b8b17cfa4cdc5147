package datapath

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// featureTag begins the tag that __feature() of bpf/config.h puts on a function.
const featureTag = "feature "

// dropDisabled replaces functions of disabled features by one that returns 0.
// Kernels before 6.8 verify functions that are not static even if nothing calls
// them: with PDM disabled, three quarters of the verifier's work.
func (s *Spec) dropDisabled() error {
	for name, p := range s.Programs {
		if len(p.Instructions) == 0 || btf.FuncMetadata(&p.Instructions[0]) == nil {
			continue // without type information there are no tags
		}
		functions := splitFunctions(p.Instructions)
		for i := range functions {
			f := &functions[i]
			disabled, err := s.isDisabled(f.info)
			if err != nil {
				return fmt.Errorf("object %s, program %s: %w", s.Object, name, err)
			}
			if disabled {
				f.body = returnZero(f.body[0].Metadata)
			}
		}
		p.Instructions = join(functions)
	}
	return nil
}

// function is a part of a program's instructions.
type function struct {
	info *btf.Func
	body asm.Instructions
}

func splitFunctions(all asm.Instructions) (functions []function) {
	for i := range all {
		if info := btf.FuncMetadata(&all[i]); info != nil {
			functions = append(functions, function{info: info, body: all[i:i]})
		}
		f := &functions[len(functions)-1]
		f.body = f.body[:len(f.body)+1]
	}
	return functions
}

func returnZero(named asm.Metadata) asm.Instructions {
	first := asm.Mov.Imm(asm.R0, 0)
	first.Metadata = named
	return asm.Instructions{first, asm.Return()}
}

// join puts the first function together with those that it needs: the kernel
// refuses static functions that nothing calls.
func join(functions []function) (all asm.Instructions) {
	needed := map[string]bool{functions[0].info.Name: true}
	for again := true; again; {
		again = false
		for _, f := range functions {
			for _, ins := range f.body {
				if needed[f.info.Name] && ins.IsFunctionReference() && !needed[ins.Reference()] {
					needed[ins.Reference()], again = true, true
				}
			}
		}
	}
	for _, f := range functions {
		if needed[f.info.Name] {
			all = append(all, f.body...)
		}
	}
	return all
}

// isDisabled reports whether a function belongs to a feature that is off.
func (s *Spec) isDisabled(f *btf.Func) (bool, error) {
	for _, tag := range f.Tags {
		name, ok := strings.CutPrefix(tag, featureTag)
		if !ok {
			continue
		}
		bits, err := s.featureBits(name)
		if err != nil {
			return false, fmt.Errorf("function %s: %w", f.Name, err)
		}
		if s.Features&bits == 0 {
			return true, nil
		}
	}
	return false, nil
}

// featureBits are those of features that share a function, by their names with | between them.
func (s *Spec) featureBits(names string) (bits uint32, err error) {
	for name := range strings.SplitSeq(names, "|") {
		bit, err := s.featureBit(strings.TrimSpace(name))
		if err != nil {
			return 0, err
		}
		bits |= bit
	}
	return bits, nil
}

// featureBit is a value of enum feature, the type of cfg_features.
func (s *Spec) featureBit(name string) (uint32, error) {
	v := s.Variables["cfg_features"]
	if v == nil {
		return 0, fmt.Errorf("object %s has no constant cfg_features", s.Object)
	}
	enum, ok := btf.UnderlyingType(v.Type.Type).(*btf.Enum)
	if !ok {
		return 0, fmt.Errorf("object %s: cfg_features is %v, not an enum", s.Object, v.Type)
	}
	i := slices.IndexFunc(enum.Values, func(e btf.EnumValue) bool { return e.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("object %s has no feature %s", s.Object, name)
	}
	return uint32(enum.Values[i].Value), nil
}
