package datapath

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/waymark-net/waymark/internal/kernel"
)

// missingFunction is what a call of a function that the kernel lacks becomes: no helper has this number. The verifier never
// gets there, as the program asks for the function's address first.
const missingFunction = asm.BuiltinFunc(0xdedc0de)

// resolveKernel gives programs what they take from the kernel's type information: the numbers of functions that they call, and
// the place of a frame's flags (bpf/frame_xdp.h). The library does so, too, but reads all types of the kernel and of its
// modules again for each program.
func resolveKernel(object *ebpf.CollectionSpec) error {
	for name, p := range object.Programs {
		for i := range p.Instructions {
			if err := resolve(&p.Instructions[i]); err != nil {
				return fmt.Errorf("program %s: %w", name, err)
			}
		}
	}
	return nil
}

func resolve(ins *asm.Instruction) error {
	if field := btf.CORERelocationMetadata(ins); field != nil {
		return resolveField(ins, field)
	}
	address := ins.OpCode.IsDWordLoad() && ins.Src == asm.R0 && ins.Reference() != ""
	if !address && !ins.IsKfuncCall() {
		return nil
	}
	number, err := kernel.Function(ins.Reference())
	if err != nil {
		return err
	}
	resolved := asm.Instruction{OpCode: ins.OpCode, Dst: ins.Dst, Src: ins.Src, Constant: int64(number)}
	if number == 0 && !address {
		resolved = missingFunction.Call()
	}
	*ins = named(resolved, ins)
	return nil
}

// resolveField knows the only field that programs read so.
func resolveField(ins *asm.Instruction, field *btf.CORERelocation) error {
	if ins.OpCode.Class() != asm.LdXClass || !strings.Contains(field.String(), `"xdp_buff"[0:0]`) {
		return fmt.Errorf("no place is known for %v", field)
	}
	resolved := *ins
	resolved.Offset = int16(kernel.XDPFlagsOffset())
	*ins = named(resolved, ins)
	return nil
}

// named gives an instruction what the library knows of another, except how to link it.
func named(ins asm.Instruction, as *asm.Instruction) asm.Instruction {
	symbol, source, function := as.Symbol(), as.Source(), btf.FuncMetadata(as)
	ins.Metadata = asm.Metadata{}
	if symbol != "" {
		ins = ins.WithSymbol(symbol)
	}
	if source != nil {
		ins = ins.WithSource(source)
	}
	if function != nil {
		ins = btf.WithFuncMetadata(ins, function)
	}
	return ins
}
