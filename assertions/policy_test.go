package assertions

import (
	"errors"
	"strings"
	"testing"
)

const head = "apiVersion: rolltrace/v1alpha1\nkind: RolloutPolicy\nmetadata: {name: space}\n"

func TestParsePolicy(t *testing.T) {
	p, err := ParsePolicy("p.yaml", []byte("# what we accept\n---\n"+head+`spec:
  waivers:
  - {name: orphan-inventory, assertion: no-warn-logs, match: "orphan inventory is read-only",
     reason: standing notice, link: "https://example.com/1"}
  - name: exit
    assertion: clean-exit
    match: '^exit code 143'
    reason: |
      the JVM does that
`))
	if err != nil {
		t.Fatal(err)
	}
	if p.Name != "space" || len(p.Waivers) != 2 {
		t.Fatalf("policy %+v", p)
	}
	w := p.Waivers[0]
	if w.Name != "orphan-inventory" || w.Assertion != "no-warn-logs" || w.Reason != "standing notice" || w.Link != "https://example.com/1" {
		t.Errorf("waiver %+v", w)
	}
	if !w.Match.MatchString("orphan inventory is read-only on builder nodes") {
		t.Error("match is no search")
	}
}

func TestParsePolicyWithoutWaivers(t *testing.T) {
	for _, tail := range []string{"", "spec: {}\n", "spec:\n  waivers: []\n"} {
		if p, err := ParsePolicy("p.yaml", []byte(head+tail)); err != nil || len(p.Waivers) != 0 {
			t.Errorf("%q: %+v, %v", tail, p, err)
		}
	}
}

// cilium/cilium-cli#2577: a misnamed check is a configuration error, not a check that never bites.
func TestParsePolicyErrors(t *testing.T) {
	waiver := func(fields string) string { return head + "spec:\n  waivers:\n  - {" + fields + "}\n" }
	const full = "name: a, assertion: clean-exit, match: x, reason: r"
	for name, c := range map[string]struct{ in, want string }{
		"empty":             {"", "policy p.yaml: is empty"},
		"blank":             {"\n \n", "is empty"},
		"comment":           {"# nothing\n", "is empty"},
		"separators":        {"---\n---\n", "is empty"},
		"two documents":     {head + "---\n" + head, "p.yaml:5:"},
		"no YAML":           {"a: [1, 2\n", "p.yaml:1:"},
		"tab":               {"a:\n\tb: c\n", "p.yaml:"},
		"a list":            {"- a\n", "p.yaml:1:"},
		"a scalar":          {"hello\n", "p.yaml:1:"},
		"unknown field":     {head + "sepc: {}\n", `p.yaml:4:1: unknown field "sepc"`},
		"unknown in waiver": {waiver(full + ", until: tomorrow"), `p.yaml:6:`},
		"repeated key":      {head + "kind: RolloutPolicy\n", "p.yaml:4:1"},
		"no apiVersion":     {"kind: RolloutPolicy\nmetadata: {name: a}\n", "p.yaml:1:1: apiVersion is missing"},
		"other apiVersion": {
			"apiVersion: v1\nkind: RolloutPolicy\nmetadata: {name: a}\n",
			`p.yaml:1:13: apiVersion "v1" is not known`,
		},
		"no kind": {"apiVersion: rolltrace/v1alpha1\nmetadata: {name: a}\n", "kind is missing"},
		"other kind": {
			"apiVersion: rolltrace/v1alpha1\nkind: Policy\nmetadata: {name: a}\n",
			`p.yaml:2:7: kind "Policy"`,
		},
		"no name":    {"apiVersion: rolltrace/v1alpha1\nkind: RolloutPolicy\n", "metadata.name is missing"},
		"wrong type": {head + "spec:\n  waivers: 3\n", "p.yaml:5:"},
		"waiver no name": {
			waiver("assertion: clean-exit, match: x, reason: r"),
			"p.yaml:6:6: waiver 1 has no name",
		},
		"waiver blank name": {waiver("name: ' ', assertion: clean-exit, match: x, reason: r"), "has no name"},
		"waiver twice": {
			head + "spec:\n  waivers:\n  - {" + full + "}\n  - {" + full + "}\n",
			`p.yaml:7:12: waiver "a" is there twice`,
		},
		"no assertion": {waiver("name: a, match: x, reason: r"), `waiver "a" has no assertion`},
		"unknown assertion": {
			waiver("name: a, assertion: clean-exits, match: x, reason: r"),
			`assertion "clean-exits" is not known; one of no-error-spans, `,
		},
		"no match":  {waiver("name: a, assertion: clean-exit, reason: r"), "has no match"},
		"no reason": {waiver("name: a, assertion: clean-exit, match: x"), "has no reason"},
		"bad regexp": {
			waiver("name: a, assertion: clean-exit, match: '(', reason: r"),
			"no regular expression: missing closing )",
		},
		"matches everything": {
			waiver("name: a, assertion: clean-exit, match: 'x*', reason: r"),
			"matches the empty string",
		},
		"too large": {strings.Repeat("#", maxPolicy+1), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := ParsePolicy("p.yaml", []byte(c.in))
			var pe *PolicyError
			if !errors.As(err, &pe) || p != nil {
				t.Fatalf("policy %+v, error %v, want a PolicyError", p, err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %q does not say %q", err, c.want)
			}
			if strings.ContainsAny(err.Error(), "\n\r") {
				t.Errorf("error is longer than a line: %q", err)
			}
		})
	}
}

// Whatever the bytes, parsing ends with a policy whose waivers are whole or with a PolicyError.
func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(head + "spec:\n  waivers:\n  - {name: a, assertion: clean-exit, match: x, reason: r}\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte("---\n...\n---\n"))
	f.Add([]byte("? ? :\n- !!binary x\n"))
	f.Add([]byte(head + "spec: {<<: {waivers: [{name: a}]}}\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		p, err := ParsePolicy("p.yaml", in)
		if err != nil {
			var pe *PolicyError
			if p != nil || !errors.As(err, &pe) {
				t.Fatalf("policy %v, error %T %v", p, err, err)
			}
			return
		}
		if p.Name == "" {
			t.Fatal("a policy without a name")
		}
		for _, w := range p.Waivers {
			if w.Name == "" || w.Reason == "" || ByID(w.Assertion) == nil || w.Match == nil || w.Match.MatchString("") {
				t.Fatalf("half a waiver: %+v", w)
			}
		}
	})
}
