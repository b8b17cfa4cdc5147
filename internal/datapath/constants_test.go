package datapath

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
)

// constantAt points a register to a byte of the constants.
func constantAt(r asm.Register, at uint32) asm.Instruction {
	ins := asm.LoadMapValue(r, 0, at)
	return ins.WithReference(constantsMap)
}

func TestWriteConstants(t *testing.T) {
	memory := make([]byte, 24)
	memory[3] = 7
	copy(memory[8:], []byte{0xff, 0xff, 0xff, 0xff})
	copy(memory[16:], []byte{1, 2, 3, 4, 5, 6, 7, 8}) // wide, whatever the order of bytes
	jump := asm.JEq.Imm(asm.R4, 0, "")
	jump.Offset = 1
	ahead := asm.Ja.Label("")
	ahead.Offset = 0
	for _, c := range []struct {
		name   string
		before asm.Instructions
		want   map[int]asm.Instruction // by index, of what changes
	}{
		{
			"loads", asm.Instructions{
				constantAt(asm.R1, 0), asm.LoadMem(asm.R2, asm.R1, 3, asm.Byte), asm.LoadMem(asm.R1, asm.R1, 8, asm.Word),
				asm.LoadMem(asm.R3, asm.R1, 0, asm.Word), // R1 is another one by now
			}, map[int]asm.Instruction{1: asm.Mov.Imm32(asm.R2, 7), 2: asm.Mov.Imm32(asm.R1, -1)},
		},
		{"too wide", asm.Instructions{constantAt(asm.R1, 16), asm.LoadMem(asm.R2, asm.R1, 0, asm.DWord)}, nil},
		{"beyond", asm.Instructions{constantAt(asm.R1, 20), asm.LoadMem(asm.R2, asm.R1, 4, asm.Word)}, nil},
		{"before", asm.Instructions{constantAt(asm.R1, 0), asm.LoadMem(asm.R2, asm.R1, -4, asm.Word)}, nil},
		{"computed", asm.Instructions{constantAt(asm.R1, 0), asm.Add.Reg(asm.R1, asm.R3), asm.LoadMem(asm.R2, asm.R1, 0, asm.Word)}, nil},
		{"behind a call", asm.Instructions{constantAt(asm.R1, 0), asm.FnKtimeGetNs.Call(), asm.LoadMem(asm.R2, asm.R1, 3, asm.Byte)}, nil},
		{
			"kept across a call",
			asm.Instructions{constantAt(asm.R6, 0), asm.FnKtimeGetNs.Call(), asm.LoadMem(asm.R2, asm.R6, 3, asm.Byte)},
			map[int]asm.Instruction{2: asm.Mov.Imm32(asm.R2, 7)},
		},
		{"where a jump leads to", asm.Instructions{constantAt(asm.R1, 0), jump, asm.Mov.Imm(asm.R2, 0), asm.LoadMem(asm.R2, asm.R1, 3, asm.Byte)}, nil},
		{"and the next one", asm.Instructions{constantAt(asm.R1, 0), ahead, asm.LoadMem(asm.R2, asm.R1, 3, asm.Byte)}, nil},
		{
			"brought back",
			asm.Instructions{constantAt(asm.R1, 0), asm.FetchAdd.Mem(asm.R10, asm.R1, asm.DWord, -8), asm.LoadMem(asm.R2, asm.R1, 3, asm.Byte)},
			nil,
		},
		{"another function", asm.Instructions{constantAt(asm.R1, 0), asm.LoadMem(asm.R2, asm.R1, 3, asm.Byte).WithSymbol("f")}, nil},
		{"another map", asm.Instructions{asm.LoadMapValue(asm.R1, 0, 0).WithReference(".data"), asm.LoadMem(asm.R2, asm.R1, 3, asm.Byte)}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := append(asm.Instructions{}, c.before...)
			writeConstants(got, memory)
			for i := range got {
				want, changes := c.want[i]
				if !changes {
					want = c.before[i]
				}
				if d := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got[i])); d != "" {
					t.Errorf("instruction %d: (-want +got)\n%s", i, d)
				}
			}
		})
	}
}
