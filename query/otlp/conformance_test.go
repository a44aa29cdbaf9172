package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"testing"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/rolltrace/rolltrace/query"
	"github.com/rolltrace/rolltrace/query/querytest"
)

var idField = regexp.MustCompile(`"(traceId|spanId|parentSpanId)":\s*"([^"]*)"`)

// marshal writes a request as one line of OTLP/JSON: ProtoJSON, but ids in hex.
func marshal(t testing.TB, rs ...*tracepb.ResourceSpans) []byte {
	t.Helper()
	b, err := protojson.Marshal(&tracepb.TracesData{ResourceSpans: rs})
	if err != nil {
		t.Fatal(err)
	}
	b = idField.ReplaceAllFunc(b, func(m []byte) []byte {
		f := idField.FindSubmatch(m)
		id, err := base64.StdEncoding.DecodeString(string(f[2]))
		if err != nil {
			t.Fatal(err)
		}
		return []byte(`"` + string(f[1]) + `":"` + hex.EncodeToString(id) + `"`)
	})
	return append(b, '\n')
}

func TestConformance(t *testing.T) {
	querytest.Run(t, querytest.Harness{
		Base: t0,
		Open: func(t *testing.T, batches [][]*tracepb.ResourceSpans) query.Traces {
			// One file a batch; one line for all of a batch, or one a resource.
			one := marshal(t, batches[0]...)
			var many bytes.Buffer
			for _, rs := range batches[1] {
				many.Write(marshal(t, rs))
			}
			return New(source(one), source(many.Bytes()))
		},
	})
}
