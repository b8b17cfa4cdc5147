package clickhouse

import (
	"strings"
	"testing"

	"github.com/waymark-net/waymark/internal/flow"
	"github.com/waymark-net/waymark/test/golden"
)

// TestSchema: a change of the tables is seen. TestOnce has an engine create them.
func TestSchema(t *testing.T) {
	schema := DefaultSchema()
	golden.Check(t, "testdata/schema.sql", Text(schema.Statements()))
	added := Text(schema.Additions())
	for i := range flow.Fields {
		if name := flow.Column(flow.Fields[i].Name); !strings.Contains(added, " ADD COLUMN IF NOT EXISTS "+name+" ") {
			t.Errorf("no column %s is added to older tables", name)
		}
	}
	schema.Monthly, schema.Keep = true, 0
	if text := Text(schema.Statements()); strings.Contains(text, "\nTTL ") || !strings.Contains(text, "toYYYYMM(time)") {
		t.Errorf("%s", text)
	}
	for name, good := range map[string]bool{"flows": true, "_f1": true, "1f": false, "": false, "a.b": false, "a;DROP": false, "ä": false} {
		if err := (Tables{"waymark", name}).Check(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}
