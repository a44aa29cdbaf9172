package assertions

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/rolltrace/rolltrace/roll"
)

// The policy's apiVersion and kind.
const (
	PolicyAPIVersion = "rolltrace/v1alpha1"
	PolicyKind       = "RolloutPolicy"
)

// maxPolicy bounds a policy file, in bytes.
const maxPolicy = 1 << 20

// Policy is what a team accepts. A nil Policy accepts nothing.
type Policy struct {
	Name    string
	Waivers []Waiver
}

// Waiver accepts findings of one assertion. An accepted finding is shown and counted and does not fail.
type Waiver struct {
	Name      string
	Assertion string
	// Match is searched, as an RE2 regular expression (https://github.com/google/re2/wiki/Syntax), in the message of
	// each finding: for no-warn-logs the log line's message, for no-error-spans the sentence with service, span name
	// and status message. It is a search: anchor it with ^ and $ to match the whole message.
	Match  *regexp.Regexp
	Reason string
	// Link is optional: where the reason is written down.
	Link string
}

// PolicyError is a policy that cannot be used. Line and Column begin at 1; both are 0 when the whole file is meant.
type PolicyError struct {
	File         string
	Line, Column int
	Message      string
}

func (e *PolicyError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("policy %s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("policy %s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

type policyFile struct {
	APIVersion string `yaml:"apiVersion"`
	Kind       string `yaml:"kind"`
	Metadata   struct {
		Name string `yaml:"name"`
	} `yaml:"metadata"`
	Spec struct {
		Waivers []waiverFile `yaml:"waivers"`
	} `yaml:"spec"`
}

type waiverFile struct {
	Name      string `yaml:"name"`
	Assertion string `yaml:"assertion"`
	Match     string `yaml:"match"`
	Reason    string `yaml:"reason"`
	Link      string `yaml:"link"`
}

// ParsePolicy reads a policy strictly: an unknown field, an unknown assertion, a missing or repeated name is a
// [*PolicyError] with its place. name is the file's, for the errors.
func ParsePolicy(name string, data []byte) (pol *Policy, err error) {
	p := &policyParser{name: name}
	defer func() { // the YAML library is not ours: a panic in it is a file that cannot be read, no crash
		if r := recover(); r != nil {
			pol, err = nil, p.errorf("", "is not readable as YAML: %v", r)
		}
	}()
	if len(data) > maxPolicy {
		return nil, p.errorf("", "is larger than %d bytes", maxPolicy)
	}
	file, perr := parser.ParseBytes(data, 0)
	if perr != nil {
		return nil, p.yamlError(perr)
	}
	docs := 0
	for _, d := range file.Docs {
		if d.Body == nil || d.Body.Type() == ast.CommentType {
			continue
		}
		if docs++; docs == 2 {
			return nil, p.at(d.Body.GetToken(), "holds more than one document; a policy is one document")
		}
	}
	if docs == 0 {
		return nil, p.errorf("", "is empty; it wants apiVersion: %s, kind: %s", PolicyAPIVersion, PolicyKind)
	}
	p.file = file

	var f policyFile
	if derr := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&f); derr != nil {
		return nil, p.yamlError(derr)
	}
	return p.policy(&f)
}

type policyParser struct {
	name string
	file *ast.File
}

// policy checks what YAML cannot: required fields, known words, unique names.
func (p *policyParser) policy(f *policyFile) (*Policy, error) {
	switch {
	case f.APIVersion == "":
		return nil, p.errorf("$", "apiVersion is missing, want %s", PolicyAPIVersion)
	case f.APIVersion != PolicyAPIVersion:
		return nil, p.errorf("$.apiVersion", "apiVersion %q is not known, want %s", f.APIVersion, PolicyAPIVersion)
	case f.Kind == "":
		return nil, p.errorf("$", "kind is missing, want %s", PolicyKind)
	case f.Kind != PolicyKind:
		return nil, p.errorf("$.kind", "kind %q is not known, want %s", f.Kind, PolicyKind)
	case strings.TrimSpace(f.Metadata.Name) == "":
		return nil, p.errorf("$", "metadata.name is missing")
	}
	pol := &Policy{Name: f.Metadata.Name}
	seen := map[string]bool{}
	for i, w := range f.Spec.Waivers {
		at := fmt.Sprintf("$.spec.waivers[%d]", i)
		who := fmt.Sprintf("waiver %q", w.Name)
		switch {
		case strings.TrimSpace(w.Name) == "":
			return nil, p.errorf(at, "waiver %d has no name", i+1)
		case seen[w.Name]:
			return nil, p.errorf(at+".name", "%s is there twice; names are unique", who)
		case w.Assertion == "":
			return nil, p.errorf(at, "%s has no assertion; one of %s", who, strings.Join(ids(), ", "))
		case ByID(w.Assertion) == nil:
			return nil, p.errorf(at+".assertion", "%s: assertion %q is not known; one of %s", who, w.Assertion,
				strings.Join(ids(), ", "))
		case w.Match == "":
			return nil, p.errorf(at, "%s has no match; it says which findings are accepted", who)
		case strings.TrimSpace(w.Reason) == "":
			return nil, p.errorf(at, "%s has no reason; it says why the findings are accepted", who)
		}
		seen[w.Name] = true
		re, err := regexp.Compile(w.Match)
		if err != nil {
			return nil, p.errorf(at+".match", "%s: match is no regular expression: %s", who,
				strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
		if re.MatchString("") {
			return nil, p.errorf(at+".match",
				"%s: match %q matches the empty string, so it would accept every finding", who, w.Match)
		}
		pol.Waivers = append(pol.Waivers, Waiver{
			Name: w.Name, Assertion: w.Assertion, Match: re, Reason: w.Reason,
			Link: w.Link,
		})
	}
	return pol, nil
}

func ids() []string {
	var out []string
	for _, a := range All {
		out = append(out, a.ID)
	}
	return out
}

// errorf makes an error at a YAML path; an empty path means the whole file.
func (p *policyParser) errorf(path, format string, args ...any) error {
	e := &PolicyError{File: p.name, Message: fmt.Sprintf(format, args...)}
	if path == "" || p.file == nil {
		return e
	}
	yp, err := yaml.PathString(path)
	if err != nil {
		return e
	}
	node, err := yp.FilterFile(p.file)
	if err != nil || node == nil {
		return e
	}
	// A mapping's own token is its first colon: the place that a person looks for is its first key.
	tk := node.GetToken()
	switch n := node.(type) {
	case *ast.MappingNode:
		if len(n.Values) > 0 {
			tk = n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		tk = n.Key.GetToken()
	}
	return p.at(tk, e.Message)
}

func (p *policyParser) at(tk *token.Token, message string) error {
	e := &PolicyError{File: p.name, Message: message}
	if tk != nil && tk.Position != nil {
		e.Line, e.Column = tk.Position.Line, tk.Position.Column
	}
	return e
}

// yamlError puts the library's error on one line, with its place.
func (p *policyParser) yamlError(err error) error {
	var ye yaml.Error
	if errors.As(err, &ye) {
		return p.at(ye.GetToken(), ye.GetMessage())
	}
	return p.errorf("", "is not readable as YAML: %v", err)
}

// waive splits findings into those that stand and those that a waiver of the policy accepts; the first waiver that
// matches is named. Neither list is nil. The findings are copied: a check's own slice is not changed.
func (pol *Policy) waive(id string, findings []roll.Finding) (open, waived []roll.Finding) {
	open, waived = []roll.Finding{}, []roll.Finding{}
	for _, f := range findings {
		w := pol.match(id, f.Message)
		if w == nil {
			open = append(open, f)
			continue
		}
		f.Waiver, f.Reason, f.Link = w.Name, w.Reason, w.Link
		waived = append(waived, f)
	}
	return open, waived
}

func (pol *Policy) match(id, message string) *Waiver {
	if pol == nil {
		return nil
	}
	for i := range pol.Waivers {
		if w := &pol.Waivers[i]; w.Assertion == id && w.Match.MatchString(message) {
			return w
		}
	}
	return nil
}

// Uses counts what each waiver accepted in the results, in the policy's order; a waiver that accepted nothing has
// count 0.
func (pol *Policy) Uses(results []roll.Result) []roll.WaiverUse {
	if pol == nil {
		return nil
	}
	uses := make([]roll.WaiverUse, len(pol.Waivers))
	index := map[string]int{}
	for i, w := range pol.Waivers {
		uses[i] = roll.WaiverUse{Name: w.Name, Assertion: w.Assertion, Reason: w.Reason, Link: w.Link}
		index[w.Name] = i
	}
	for _, r := range results {
		for _, f := range r.Waived {
			if i, ok := index[f.Waiver]; ok {
				uses[i].Count++
			}
		}
	}
	return uses
}
