package flow

import "testing"

// TestProtobuf: each field has a number, and a name, that no other one has.
func TestProtobuf(t *testing.T) {
	numbers, names := map[int32]string{}, map[string]string{}
	for i := range Fields {
		f := &Fields[i]
		p := f.Protobuf()
		switch {
		case p.Number == 0:
			t.Errorf("%s has no number: append it to ownProtobuf", f.Name)
		case p.Type == "":
			t.Errorf("%s has no type", f.Name)
		case numbers[p.Number] != "" || names[p.Name] != "":
			t.Errorf("%s has number or name of %s%s", f.Name, numbers[p.Number], names[p.Name])
		}
		numbers[p.Number], names[p.Name] = f.Name, f.Name
	}
	if p := FieldNamed("host").Protobuf(); p.Number != 1000 {
		t.Errorf("host has number %d: numbers never change", p.Number)
	}
	if p := FieldNamed("ioam.relative").Protobuf(); p.Number != 1066 {
		t.Errorf("ioam.relative has number %d: numbers never change", p.Number)
	}
}
