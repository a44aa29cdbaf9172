package tempo

import (
	"strconv"
	"strings"

	"github.com/rolltrace/rolltrace/query"
)

// filter returns the TraceQL spanset filter of a selection. kind takes no regular expression, so it is spelt out.
func filter(sel query.Selection, more ...string) string {
	parts := []string{"(kind = client || kind = server)"}
	if sel.Shutdown {
		parts[0] = "name =~ " + quote(query.ShutdownName)
	}
	if sel.ErrorsOnly {
		parts = append(parts, "status = error")
	}
	if n := len(sel.Services); n > 0 {
		alts := make([]string, n)
		for i, s := range sel.Services {
			alts[i] = "resource.service.name = " + quote(s)
		}
		s := strings.Join(alts, " || ")
		if n > 1 {
			s = "(" + s + ")"
		}
		parts = append(parts, s)
	}
	return "{ " + strings.Join(append(parts, more...), " && ") + " }"
}

// quote writes a TraceQL string. Tempo reads it with strconv.Unquote (pkg/traceql/lexer.go), so Go's quoting is exact.
func quote(s string) string { return strconv.Quote(s) }

// The stages after the filter. by(span:id) makes each span its own span set, which is what keeps Tempo from dropping one
// of two fragments of a trace (combineSpansets in pkg/traceql/combine.go) and from cutting sets at spss; its cost grows
// with the square of a trace's spans.
const (
	bySpanID = " | by(span:id)"
	// light selects what identifies a span.
	light = " | select(kind, status)"
	count = " | count_over_time() by (kind, status)"
)

// full selects all that [query.ResourceKeys] and [query.SpanKeys] promise. Search results lose the scope of a key, so no
// key is in both.
var full = " | select(kind, status, name, statusMessage, span:parentID" +
	scoped(", resource.", query.ResourceKeys) + scoped(", span.", query.SpanKeys) + ")"

// plain is for servers that refuse full; what they return is fetched by id.
const plain = " | select(kind, status, name, statusMessage)"

func scoped(prefix string, keys []string) string {
	return prefix + strings.Join(keys, prefix)
}
