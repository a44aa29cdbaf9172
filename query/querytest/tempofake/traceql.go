package tempofake

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
)

type scope int

const (
	scopeNone scope = iota
	scopeSpan
	scopeResource
	scopeEvent
	scopeInstrumentation
	scopeIntrinsic
)

// An attribute is one of the span, of its resource, …, or an intrinsic: then name is the canonical one.
type attribute struct {
	scope scope
	name  string
}

func (a attribute) String() string {
	switch a.scope {
	case scopeSpan:
		return "span." + a.name
	case scopeResource:
		return "resource." + a.name
	case scopeEvent:
		return "event." + a.name
	case scopeInstrumentation:
		return "instrumentation." + a.name
	case scopeIntrinsic:
		return a.name
	default:
		return "." + a.name
	}
}

// intrinsics maps what may be written to the name that answers carry.
var intrinsics = map[string]string{
	"name": "name", "span:name": "name",
	"status": "status", "span:status": "status",
	"statusMessage": "statusMessage", "span:statusMessage": "statusMessage",
	"kind": "kind", "span:kind": "kind",
	"duration": "duration", "span:duration": "duration",
	"span:id": "span:id", "span:parentID": "span:parentID", "span:childCount": "span:childCount",
	"trace:id":      "trace:id",
	"traceDuration": "traceDuration", "trace:duration": "traceDuration",
	"rootName": "rootName", "trace:rootName": "rootName",
	"rootServiceName": "rootServiceName", "trace:rootService": "rootServiceName",
	"event:name": "event:name", "event:timeSinceStart": "event:timeSinceStart",
	"instrumentation:name": "instrumentation:name", "instrumentation:version": "instrumentation:version",
	"nestedSetLeft": "nestedSetLeft", "nestedSetRight": "nestedSetRight", "nestedSetParent": "nestedSetParent",
	"parent": "parent",
}

type valueType int

const (
	typeNil valueType = iota
	typeAttribute
	typeInt
	typeFloat
	typeString
	typeBool
	typeDuration
	typeStatus
	typeKind
	typeOther
)

func (t valueType) numeric() bool { return t == typeInt || t == typeFloat || t == typeDuration }

func (a attribute) typ() valueType {
	if a.scope != scopeIntrinsic {
		return typeAttribute
	}
	switch a.name {
	case "status":
		return typeStatus
	case "kind":
		return typeKind
	case "duration", "traceDuration", "event:timeSinceStart":
		return typeDuration
	case "nestedSetLeft", "nestedSetRight", "nestedSetParent", "span:childCount":
		return typeInt
	default:
		return typeString
	}
}

// A value is a literal or what a span has. A status and a kind are their names in text.
type value struct {
	typ  valueType
	text string
	n    int64
	f    float64
	// any is the value as it came, for those that came as one.
	any *commonpb.AnyValue
}

func (v value) String() string {
	switch v.typ {
	case typeString:
		return "`" + v.text + "`"
	case typeInt:
		return strconv.FormatInt(v.n, 10)
	case typeFloat:
		return strconv.FormatFloat(v.f, 'g', -1, 64)
	case typeBool:
		return strconv.FormatBool(v.n != 0)
	case typeDuration:
		return time.Duration(v.n).String()
	case typeStatus, typeKind:
		return v.text
	default:
		return "nil"
	}
}

// proto is the value in an answer: a missing one, a status, a kind and a duration are strings.
func (v value) proto() *commonpb.AnyValue {
	switch {
	case v.any != nil:
		return v.any
	case v.typ == typeInt:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_IntValue{IntValue: v.n}}
	case v.typ == typeBool:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_BoolValue{BoolValue: v.n != 0}}
	case v.typ == typeFloat:
		return &commonpb.AnyValue{Value: &commonpb.AnyValue_DoubleValue{DoubleValue: v.f}}
	case v.typ == typeString:
		return stringValue(v.text)
	default:
		return stringValue(v.String())
	}
}

func stringValue(s string) *commonpb.AnyValue {
	return &commonpb.AnyValue{Value: &commonpb.AnyValue_StringValue{StringValue: s}}
}

func boolean(b bool) value {
	if b {
		return value{typ: typeBool, n: 1}
	}
	return value{typ: typeBool}
}

var (
	statusNames = []string{"unset", "ok", "error"}
	kindNames   = []string{"unspecified", "internal", "server", "client", "producer", "consumer"}
)

// An expr is the inside of {}.
type expr interface {
	typ() valueType
	String() string
	validate() error
}

type (
	static struct{ value }
	// A binary is a comparison, && or ||.
	binary struct {
		op   string
		l, r expr
		re   *regexp.Regexp
	}
	not struct{ e expr }
	// An exists is a comparison with nil.
	exists struct {
		attr    attribute
		missing bool
	}
)

func (s static) typ() valueType  { return s.value.typ }
func (*binary) typ() valueType   { return typeBool }
func (not) typ() valueType       { return typeBool }
func (exists) typ() valueType    { return typeBool }
func (s static) validate() error { return nil }
func (b *binary) logical() bool  { return b.op == "&&" || b.op == "||" }
func (b *binary) String() string { return wrap(b.l) + " " + b.op + " " + wrap(b.r) }
func (n not) String() string     { return "!" + wrap(n.e) }
func (a attribute) validate() error {
	if a.scope == scopeIntrinsic && a.name == "parent" {
		return errors.New("intrinsic (parent) not yet supported")
	}
	return nil
}

func (x exists) String() string {
	if x.missing {
		return x.attr.String() + "=nil"
	}
	return x.attr.String() + "!=nil"
}

func wrap(e expr) string {
	switch e.(type) {
	case static, attribute:
		return e.String()
	default:
		return "(" + e.String() + ")"
	}
}

func (x exists) validate() error {
	if err := x.attr.validate(); err != nil {
		return err
	}
	switch {
	case x.missing && x.attr.scope == scopeIntrinsic:
		return fmt.Errorf("%s is not valid because intrinsics cannot be nil", x)
	case x.missing && x.attr == attribute{scopeResource, "service.name"}:
		return fmt.Errorf("%s is not valid because resource.service.name cannot be nil", x)
	}
	return nil
}

func (n not) validate() error {
	if err := n.e.validate(); err != nil {
		return err
	}
	if t := n.e.typ(); t != typeBool && t != typeAttribute {
		return fmt.Errorf("illegal operation for the given type: %s", n)
	}
	return nil
}

func (b *binary) validate() error {
	if err := b.l.validate(); err != nil {
		return err
	}
	if err := b.r.validate(); err != nil {
		return err
	}
	l, r := b.l.typ(), b.r.typ()
	if l != r && l != typeAttribute && r != typeAttribute && !(l.numeric() && r.numeric()) {
		return fmt.Errorf("binary operations must operate on the same type: %s", b)
	}
	for _, t := range []valueType{l, r} {
		if !b.allows(t) {
			return fmt.Errorf("illegal operation for the given types: %s", b)
		}
	}
	if b.op != "=~" && b.op != "!~" {
		return nil
	}
	lit, ok := b.r.(static)
	if !ok || lit.value.typ != typeString {
		return fmt.Errorf("invalid type for =~ or !~: %s", b.r)
	}
	// The whole value must match (Prometheus' rule).
	re, err := regexp.Compile("^(?s:" + lit.text + ")$")
	if err != nil {
		return fmt.Errorf("invalid regex: %s", b.r)
	}
	b.re = re
	return nil
}

func (b *binary) allows(t valueType) bool {
	switch b.op {
	case "&&", "||":
		return t == typeBool || t == typeAttribute
	case "=~", "!~":
		return t == typeString || t == typeAttribute
	case "<", "<=", ">", ">=":
		return t == typeString || t == typeAttribute || t.numeric()
	default:
		return true
	}
}

// A query is a parsed and validated TraceQL query.
type query struct {
	stages []stage
	// metric is "", "count_over_time" or "rate".
	metric     string
	metricBy   []attribute
	mostRecent bool
	// wanted are the attributes that each span of an answer carries, in order of first mention.
	wanted []*wantedAttribute
}

// A wantedAttribute is carried when it was selected or grouped by, or else when one of the conditions on it holds:
// Tempo reads no other values from its blocks.
type wantedAttribute struct {
	attr       attribute
	selected   bool
	conditions []func(value) bool
}

// A stage is one element of the pipeline.
type stage struct {
	filter   expr
	spansets *spansetExpr
	by       *attribute
	// count compares the number of spans: countOp is "" elsewhere.
	countOp string
	countN  int64
}

// A spansetExpr joins two filters by && or ||: the spans of both, when both (or any) have some.
type spansetExpr struct {
	op   string
	l, r *spansetExpr
	leaf expr
}

// unsupported is the error for TraceQL that Tempo knows and this package does not.
func unsupported(what string) error { return fmt.Errorf("tempofake: %s is not supported", what) }

func parseQuery(text string) (*query, error) {
	if len(text) > maxQueryBytes {
		return nil, fmt.Errorf("query expression is too large: %d bytes, max %d", len(text), maxQueryBytes)
	}
	tokens := lex(text)
	if tokens[0].kind == tokEnd {
		return nil, &parseError{msg: "syntax error: unexpected $end"}
	}
	p := &parser{tokens: tokens, q: &query{}}
	if err := p.query(); err != nil {
		return nil, err
	}
	return p.q, p.q.prepare()
}

type parser struct {
	tokens []token
	pos    int
	depth  int
	q      *query
}

func (p *parser) peek() token { return p.tokens[p.pos] }

func (p *parser) take() token {
	t := p.tokens[p.pos]
	if t.kind != tokEnd && t.kind != tokError {
		p.pos++
	}
	return t
}

func (p *parser) unexpected(expecting ...string) error {
	t := p.peek()
	if t.kind == tokError {
		return t.err
	}
	msg := "syntax error: unexpected " + t.name()
	if len(expecting) > 0 {
		msg += ", expecting " + strings.Join(expecting, " or ")
	}
	return &parseError{t.line, t.col, msg}
}

func (p *parser) is(op string) bool  { t := p.peek(); return t.kind == tokOp && t.text == op }
func (p *parser) word(w string) bool { t := p.peek(); return t.kind == tokIdent && t.text == w }
func (p *parser) isOne(ops ...string) bool {
	t := p.peek()
	return t.kind == tokOp && slices.Contains(ops, t.text)
}

func (p *parser) expect(op string, expecting ...string) error {
	if !p.is(op) {
		return p.unexpected(expecting...)
	}
	p.take()
	return nil
}

func (p *parser) query() error {
	for {
		if err := p.element(); err != nil {
			return err
		}
		if !p.is("|") || p.q.metric != "" {
			break
		}
		p.take()
	}
	if p.word("with") {
		p.take()
		if err := p.hints(); err != nil {
			return err
		}
	}
	if p.peek().kind != tokEnd {
		return p.unexpected("with")
	}
	return nil
}

func (p *parser) element() error {
	t := p.peek()
	switch {
	case p.isOne("{", "("):
		s, err := p.spansets(0)
		if err != nil {
			return err
		}
		if s.op == "" {
			p.q.stages = append(p.q.stages, stage{filter: s.leaf})
		} else {
			p.q.stages = append(p.q.stages, stage{spansets: s})
		}
		return nil
	case len(p.q.stages) == 0 || t.kind != tokIdent || !slices.Contains(keywords, t.text):
		if len(p.q.stages) > 0 && t.kind == tokIdent && strings.HasSuffix(t.text, "_over_time") {
			return unsupported(t.text)
		}
		return p.unexpected()
	}
	p.take()
	switch t.text {
	case "by":
		attrs, err := p.attributes()
		if err != nil {
			return err
		}
		if len(attrs) != 1 {
			return p.unexpected()
		}
		p.q.stages = append(p.q.stages, stage{by: &attrs[0]})
		return p.q.want(attrs[0])
	case "select":
		attrs, err := p.attributes()
		if err != nil {
			return err
		}
		return p.q.want(attrs...)
	case "count":
		return p.count()
	case "count_over_time", "rate":
		p.q.metric = t.text
		if err := p.expect("("); err != nil {
			return err
		}
		if err := p.expect(")", ")"); err != nil {
			return err
		}
		if !p.word("by") {
			return nil
		}
		p.take()
		attrs, err := p.attributes()
		p.q.metricBy = attrs
		return err
	default:
		return unsupported(t.text)
	}
}

func (p *parser) count() error {
	for _, op := range []string{"(", ")"} {
		if err := p.expect(op); err != nil {
			return err
		}
	}
	if !p.isOne("=", "!=", "<", "<=", ">", ">=") {
		return p.unexpected()
	}
	s := stage{countOp: p.take().text}
	if p.peek().kind != tokInt {
		return p.unexpected()
	}
	s.countN = p.take().n
	p.q.stages = append(p.q.stages, s)
	return nil
}

// hints reads with(name=value, ...): only most_recent means something here.
func (p *parser) hints() error {
	if err := p.expect("("); err != nil {
		return err
	}
	for {
		name := p.take()
		if name.kind != tokIdent {
			return &parseError{name.line, name.col, "syntax error: unexpected " + name.name()}
		}
		if err := p.expect("="); err != nil {
			return err
		}
		v := p.take()
		if v.kind == tokOp || v.kind == tokEnd || v.kind == tokError || v.kind == tokAttribute {
			return &parseError{v.line, v.col, "syntax error: unexpected " + v.name()}
		}
		if name.text == "most_recent" {
			p.q.mostRecent = v.text == "true"
		}
		if !p.is(",") {
			return p.expect(")")
		}
		p.take()
	}
}

// attributes reads (a, b, ...).
func (p *parser) attributes() ([]attribute, error) {
	if err := p.expect("("); err != nil {
		return nil, err
	}
	var attrs []attribute
	for {
		t := p.peek()
		switch t.kind {
		case tokAttribute:
			p.take()
			if err := t.attr.validate(); err != nil {
				return nil, err
			}
			attrs = append(attrs, t.attr)
		case tokInt, tokString, tokFloat, tokDuration:
			return nil, fmt.Errorf("grouping field expressions must reference the span: by(%s)", t.text)
		default:
			return nil, p.unexpected()
		}
		if !p.is(",") {
			return attrs, p.expect(")")
		}
		p.take()
	}
}

// enter bounds the recursion: a query of 128 KiB can hold as many parentheses.
func (p *parser) enter() error {
	if p.depth++; p.depth > 1000 {
		return unsupported("nesting deeper than 1000")
	}
	return nil
}

func (p *parser) spansets(level int) (*spansetExpr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	ops := []string{"||", "&&"}
	if level < len(ops) {
		l, err := p.spansets(level + 1)
		for err == nil && p.is(ops[level]) {
			p.take()
			var r *spansetExpr
			r, err = p.spansets(level + 1)
			l = &spansetExpr{op: ops[level], l: l, r: r}
		}
		if err == nil && p.isOne(">", "<", "=", "!=", "!", "~", "=~") {
			return nil, unsupported("a structural operator")
		}
		return l, err
	}
	if p.is("(") {
		p.take()
		s, err := p.spansets(0)
		if err != nil {
			return nil, err
		}
		return s, p.expect(")")
	}
	if err := p.expect("{"); err != nil {
		return nil, err
	}
	if p.is("}") {
		p.take()
		return &spansetExpr{leaf: static{boolean(true)}}, nil
	}
	e, err := p.expr(0)
	if err != nil {
		return nil, err
	}
	return &spansetExpr{leaf: e}, p.expect("}")
}

var precedence = [][]string{{"||"}, {"&&"}, {"=", "!=", "=~", "!~", "<", "<=", ">", ">="}}

func (p *parser) expr(level int) (expr, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer func() { p.depth-- }()
	if level == len(precedence) {
		return p.operand()
	}
	l, err := p.expr(level + 1)
	for err == nil && p.isOne(precedence[level]...) {
		op := p.take().text
		var r expr
		r, err = p.expr(level + 1)
		if err != nil {
			return nil, err
		}
		l = newBinary(op, l, r)
	}
	if err == nil && p.isOne("+", "-", "*", "/", "%", "^") {
		return nil, unsupported("arithmetic")
	}
	return l, err
}

func newBinary(op string, l, r expr) expr {
	attr, isAttr := l.(attribute)
	lit, isStatic := r.(static)
	if isAttr && isStatic && lit.value.typ == typeString && attr == (attribute{scopeIntrinsic, "trace:id"}) {
		lit.text = strings.TrimLeft(lit.text, "0")
		r = lit
	}
	if isAttr && isStatic && lit.value.typ == typeNil && (op == "=" || op == "!=") {
		return exists{attr: attr, missing: op == "="}
	}
	return &binary{op: op, l: l, r: r}
}

func (p *parser) operand() (expr, error) {
	t := p.peek()
	switch t.kind {
	case tokAttribute:
		p.take()
		return t.attr, nil
	case tokString:
		p.take()
		return static{value{typ: typeString, text: t.text}}, nil
	case tokInt:
		p.take()
		return static{value{typ: typeInt, n: t.n}}, nil
	case tokFloat:
		p.take()
		return static{value{typ: typeFloat, f: t.f}}, nil
	case tokDuration:
		p.take()
		return static{value{typ: typeDuration, n: t.n}}, nil
	case tokIdent:
		return p.named()
	case tokEnd, tokError:
		return nil, p.unexpected()
	}
	switch t.text {
	case "(":
		p.take()
		e, err := p.expr(0)
		if err != nil {
			return nil, err
		}
		return e, p.expect(")")
	case "!":
		p.take()
		if err := p.enter(); err != nil {
			return nil, err
		}
		defer func() { p.depth-- }()
		e, err := p.operand()
		return not{e}, err
	case "-":
		p.take()
		n := p.take()
		switch n.kind {
		case tokInt:
			return static{value{typ: typeInt, n: -n.n}}, nil
		case tokFloat:
			return static{value{typ: typeFloat, f: -n.f}}, nil
		case tokDuration:
			return static{value{typ: typeDuration, n: -n.n}}, nil
		}
		return nil, unsupported("arithmetic")
	}
	return nil, p.unexpected()
}

func (p *parser) named() (expr, error) {
	t := p.peek()
	v := value{text: t.text}
	switch {
	case t.text == "true" || t.text == "false":
		v = boolean(t.text == "true")
	case t.text == "nil":
		v = value{}
	case slices.Contains(statusNames, t.text):
		v.typ = typeStatus
	case slices.Contains(kindNames, t.text):
		v.typ = typeKind
	case slices.Contains(keywords, t.text):
		return nil, p.unexpected()
	default:
		return nil, &parseError{t.line, t.col, "unknown identifier: " + t.text}
	}
	p.take()
	return static{v}, nil
}

// want notes attributes that each span of an answer is to carry.
func (q *query) want(attrs ...attribute) error {
	for _, a := range attrs {
		q.wantOne(a).selected = true
	}
	return nil
}

func (q *query) wantOne(a attribute) *wantedAttribute {
	for _, w := range q.wanted {
		if w.attr == a {
			return w
		}
	}
	w := &wantedAttribute{attr: a}
	q.wanted = append(q.wanted, w)
	return w
}

// prepare validates the filters and notes what they read.
func (q *query) prepare() error {
	for _, s := range q.stages {
		if s.filter != nil {
			if err := q.prepareFilter(s.filter); err != nil {
				return err
			}
		}
		if err := q.prepareSpansets(s.spansets); err != nil {
			return err
		}
	}
	return nil
}

func (q *query) prepareSpansets(s *spansetExpr) error {
	switch {
	case s == nil:
		return nil
	case s.op == "":
		return q.prepareFilter(s.leaf)
	}
	if err := q.prepareSpansets(s.l); err != nil {
		return err
	}
	return q.prepareSpansets(s.r)
}

func (q *query) prepareFilter(e expr) error {
	if err := e.validate(); err != nil {
		return err
	}
	if t := e.typ(); t != typeBool && t != typeAttribute {
		return fmt.Errorf("span filter field expressions must resolve to a boolean: { %s }", e)
	}
	q.note(e)
	return nil
}

func (q *query) note(e expr) {
	switch e := e.(type) {
	case attribute:
		w := q.wantOne(e)
		w.conditions = append(w.conditions, func(v value) bool { return v.typ != typeNil })
	case exists:
		w := q.wantOne(e.attr)
		w.conditions = append(w.conditions, func(v value) bool { return (v.typ == typeNil) == e.missing })
	case not:
		q.note(e.e)
	case *binary:
		attr, isAttr := e.l.(attribute)
		lit, isStatic := e.r.(static)
		switch {
		case e.logical():
			q.note(e.l)
			q.note(e.r)
		case isAttr && isStatic:
			w := q.wantOne(attr)
			w.conditions = append(w.conditions, func(v value) bool { return e.compare(v, lit.value) == yes })
		default:
			q.note(e.l)
			q.note(e.r)
		}
	}
}
