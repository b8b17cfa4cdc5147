package otlp

import "google.golang.org/protobuf/encoding/protowire"

// Fields of ResourceLogs and ScopeLogs; those of metrics have the same numbers.
const (
	requestResources  protowire.Number = 1 // of a request
	resourceResource  protowire.Number = 1
	resourceScopes    protowire.Number = 2
	resourceAttribute protowire.Number = 1
	scopeScope        protowire.Number = 1
	scopeRecords      protowire.Number = 2
	scopeSchemaURL    protowire.Number = 3
)

// Resource is what all that an agent exports has in common.
type Resource struct {
	Host    string
	Version string // of the agent
}

// scopeName is the instrumentation scope.
const scopeName = "github.com/waymark-net/waymark"

// envelope is what stands in front of the records, or metrics, of a request.
type envelope struct {
	resource []byte // a field of ResourceLogs
	scope    []byte // fields of ScopeLogs
}

func newEnvelope(r Resource) envelope {
	var resource []byte
	for _, a := range []struct{ name, value string }{
		{"service.name", "waymark"}, {"service.version", r.Version}, {"host.name", r.Host},
	} {
		resource = appendAttribute(resource, resourceAttribute, newKey(a.name), appendString(nil, a.value))
	}
	scope := appendBytes(nil, 1, scopeName)
	scope = appendBytes(scope, 2, r.Version)
	return envelope{
		resource: appendBytes(nil, resourceResource, resource),
		scope:    appendBytes(nil, scopeScope, scope),
	}
}

// appendHead adds what precedes records of n bytes, so that both together are a request.
func (e *envelope) appendHead(b []byte, n int) []byte {
	inScope := len(e.scope) + n
	inResource := len(e.resource) + protowire.SizeTag(resourceScopes) + protowire.SizeBytes(inScope)
	b = protowire.AppendTag(b, requestResources, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inResource))
	b = append(b, e.resource...)
	b = protowire.AppendTag(b, resourceScopes, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(inScope))
	return append(b, e.scope...)
}
