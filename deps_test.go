package rolltrace_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rolltrace/rolltrace"

// allowed is the import graph: a statement of policy. Each package lists which of ours it may import, and which heavy
// third-party modules. DO NOT CHANGE THIS TABLE TO FIX A BUILD: change the build, or argue the policy first.
var allowed = map[string]struct{ ours, heavy []string }{
	"roll":                      {},
	"roll/rolltest":             {ours: []string{"roll"}},
	"record":                    {ours: []string{"roll"}, heavy: []string{"k8s.io"}},
	"query":                     {ours: []string{"roll"}},
	"query/otlpspan":            {ours: []string{"roll"}, heavy: []string{"otlp"}},
	"query/tempo":               {ours: []string{"query", "roll", "query/otlpspan", "query/tempo/tempopb"}, heavy: []string{"grpc", "otlp"}},
	"query/tempo/tempopb":       {heavy: []string{"grpc", "otlp"}},
	"query/otlp":                {ours: []string{"query", "roll", "query/otlpspan"}, heavy: []string{"otlp"}},
	"query/querytest":           {ours: []string{"query", "roll"}, heavy: []string{"otlp"}},
	"query/querytest/tempofake": {ours: []string{"query/tempo/tempopb"}, heavy: []string{"grpc", "otlp"}},
	"correlate":                 {ours: []string{"roll"}},
	"assertions":                {ours: []string{"roll"}},
	"verify":                    {ours: []string{"roll", "correlate", "query", "assertions"}},
	"report":                    {ours: []string{"roll"}},
	"cmd/rolltrace":             {ours: []string{"*"}, heavy: []string{"*"}},
}

// heavy maps a name of the table to the modules that it stands for.
var heavy = map[string][]string{
	"k8s.io": {"k8s.io/", "sigs.k8s.io/"},
	"grpc":   {"google.golang.org/grpc", "google.golang.org/protobuf"},
	"otlp":   {"go.opentelemetry.io/proto/otlp", "google.golang.org/protobuf"},
	"cobra":  {"github.com/spf13/"},
}

// refused are modules that no package may import, with the reason.
var refused = map[string]string{
	"github.com/grafana/tempo": "AGPL-3.0",
	"github.com/grafana/loki":  "AGPL-3.0",
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func TestImportGraph(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := map[string]bool{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if name == "" {
			continue // this file
		}
		rule, ok := allowed[name]
		if !ok {
			t.Errorf("package %s is not in the table", name)
			continue
		}
		seen[name] = true
		for _, imp := range p.Imports {
			for m, why := range refused {
				if strings.HasPrefix(imp, m) {
					t.Errorf("%s imports %s: refused (%s)", name, imp, why)
				}
			}
			if ours, ok := strings.CutPrefix(imp, module+"/"); ok {
				if !slices.Contains(rule.ours, ours) && !slices.Contains(rule.ours, "*") {
					t.Errorf("%s imports %s, which the table does not allow", name, ours)
				}
				continue
			}
			if !heavyAllowed(rule.heavy, imp) {
				t.Errorf("%s imports %s, which the table does not allow", name, imp)
			}
		}
	}
	for name := range allowed {
		if !seen[name] {
			t.Errorf("the table names %s, which does not exist", name)
		}
	}
}

// heavyAllowed reports whether imp is no heavy module, or an allowed one.
func heavyAllowed(names []string, imp string) bool {
	isHeavy := false
	for name, prefixes := range heavy {
		for _, p := range prefixes {
			if !strings.HasPrefix(imp, p) {
				continue
			}
			if slices.Contains(names, name) || slices.Contains(names, "*") {
				return true
			}
			isHeavy = true
		}
	}
	return !isHeavy
}
