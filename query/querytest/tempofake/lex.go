package tempofake

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxQueryBytes is max_query_expression_size_bytes (modules/frontend/config.go).
const maxQueryBytes = 128 << 10

type tokenKind int

const (
	tokEnd tokenKind = iota
	tokIdent
	tokString
	tokInt
	tokFloat
	tokDuration
	tokAttribute
	tokOp
	// tokError is where the text is no token: an error, once the parser gets there.
	tokError
)

// A token's text is the operator, the identifier or the string's value.
type token struct {
	kind      tokenKind
	text      string
	attr      attribute
	n         int64
	f         float64
	err       error
	line, col int
}

// name is how an error message calls the token.
func (t token) name() string {
	switch t.kind {
	case tokEnd:
		return "$end"
	case tokIdent:
		if slices.Contains(keywords, t.text) {
			return t.text
		}
		return "IDENTIFIER"
	case tokString:
		return "STRING"
	case tokInt:
		return "INTEGER"
	case tokFloat:
		return "FLOAT"
	case tokDuration:
		return "DURATION"
	case tokAttribute:
		return t.attr.String()
	default:
		return t.text
	}
}

// A parseError carries Tempo's wording: a client may look at it.
type parseError struct {
	line, col int
	msg       string
}

func (e *parseError) Error() string {
	if e.line == 0 {
		return "parse error : " + e.msg
	}
	return fmt.Sprintf("parse error at line %d, col %d: %s", e.line, e.col, e.msg)
}

var (
	keywords = []string{
		"select", "by", "with", "coalesce", "count", "avg", "min", "max", "sum", "true", "false", "nil", "count_over_time",
		"rate",
	}
	operators = []string{
		"&&", "||", "!=", "=~", "!~", "<=", ">=",
		"{", "}", "(", ")", ",", "|", "=", "<", ">", "!", "+", "-", "*", "/", "%", "^",
	}
	attributeScopes = map[string]scope{
		"span": scopeSpan, "resource": scopeResource, "event": scopeEvent, "instrumentation": scopeInstrumentation,
	}
)

type lexer struct {
	src       []rune
	pos       int
	line, col int
	tokens    []token
}

// lex splits a query into tokens, the last of which is tokEnd or tokError.
func lex(query string) []token {
	l := &lexer{src: []rune(query), line: 1, col: 1}
	for {
		l.skipSpace()
		done, err := l.next()
		if err != nil {
			return append(l.tokens, token{kind: tokError, err: err})
		}
		if done {
			return l.tokens
		}
	}
}

func (l *lexer) peek(ahead int) rune {
	if l.pos+ahead < len(l.src) {
		return l.src[l.pos+ahead]
	}
	return 0
}

func (l *lexer) advance(n int) {
	for range n {
		if l.src[l.pos] == '\n' {
			l.line, l.col = l.line+1, 0
		}
		l.pos++
		l.col++
	}
}

func (l *lexer) skipSpace() {
	for l.pos < len(l.src) && unicode.IsSpace(l.src[l.pos]) {
		l.advance(1)
	}
}

func (l *lexer) errorf(t token, format string, args ...any) error {
	return &parseError{t.line, t.col, fmt.Sprintf(format, args...)}
}

func (l *lexer) next() (done bool, err error) {
	t := token{line: l.line, col: l.col}
	c := l.peek(0)
	switch {
	case l.pos >= len(l.src):
		t.kind = tokEnd
		l.tokens = append(l.tokens, t)
		return true, nil
	case c == '"' || c == '`':
		t.kind = tokString
		t.text, err = l.quoted(t)
	case c >= '0' && c <= '9':
		err = l.number(&t)
	case c == '.':
		l.advance(1)
		t.kind = tokAttribute
		t.attr.name, err = l.attributeName(t)
	case unicode.IsLetter(c) || c == '_':
		err = l.word(&t)
	default:
		t.kind = tokOp
		rest := string(l.src[l.pos:min(l.pos+2, len(l.src))])
		for _, op := range operators {
			if strings.HasPrefix(rest, op) {
				t.text = op
				break
			}
		}
		if t.text == "" {
			return false, l.errorf(t, "unknown identifier: %c", c)
		}
		l.advance(len(t.text))
	}
	if err == nil {
		l.tokens = append(l.tokens, t)
	}
	return false, err
}

func (l *lexer) quoted(t token) (string, error) {
	quote := l.peek(0)
	l.advance(1)
	var b strings.Builder
	for l.pos < len(l.src) {
		c := l.peek(0)
		switch {
		case c == quote:
			l.advance(1)
			return b.String(), nil
		case c == '\\' && quote == '"':
			l.advance(1)
			switch l.peek(0) {
			case '"', '\\':
				b.WriteRune(l.peek(0))
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			case 0:
				return "", l.errorf(t, "literal not terminated")
			default:
				// The other escapes are Go's: the real one reads strings with strconv.Unquote (pkg/traceql/lexer.go).
				rest := `\` + string(l.src[l.pos:])
				c, multibyte, tail, err := strconv.UnquoteChar(rest, '"')
				if err != nil {
					return "", l.errorf(t, "invalid char escape")
				}
				if multibyte {
					b.WriteRune(c)
				} else {
					b.WriteByte(byte(c))
				}
				l.advance(utf8.RuneCountInString(rest) - utf8.RuneCountInString(tail) - 2)
			}
			l.advance(1)
		default:
			b.WriteRune(c)
			l.advance(1)
		}
	}
	return "", l.errorf(t, "literal not terminated")
}

func (l *lexer) number(t *token) error {
	from := l.pos
	for l.pos < len(l.src) && (unicode.IsDigit(l.peek(0)) || unicode.IsLetter(l.peek(0)) || l.peek(0) == '.') {
		l.advance(1)
	}
	text := string(l.src[from:l.pos])
	t.text = text
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		t.kind, t.n = tokInt, n
		return nil
	}
	if d, err := time.ParseDuration(text); err == nil {
		t.kind, t.n = tokDuration, int64(d)
		return nil
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil {
		t.kind, t.f = tokFloat, f
		return nil
	}
	return l.errorf(*t, "syntax error: unexpected IDENTIFIER")
}

// attributeName reads what follows the dot; parts of it may be quoted.
func (l *lexer) attributeName(t token) (string, error) {
	var b strings.Builder
	for l.pos < len(l.src) {
		c := l.peek(0)
		if c == '"' {
			s, err := l.quoted(t)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
			continue
		}
		if unicode.IsSpace(c) || strings.ContainsRune("{}()=~!<>&|^,", c) {
			break
		}
		b.WriteRune(c)
		l.advance(1)
	}
	if b.Len() == 0 {
		return "", &parseError{l.line, l.col, "syntax error: unexpected END_ATTRIBUTE"}
	}
	return b.String(), nil
}

func (l *lexer) ident() string {
	from := l.pos
	for l.pos < len(l.src) && (unicode.IsLetter(l.peek(0)) || unicode.IsDigit(l.peek(0)) || l.peek(0) == '_') {
		l.advance(1)
	}
	return string(l.src[from:l.pos])
}

func (l *lexer) word(t *token) (err error) {
	word := l.ident()
	switch c := l.peek(0); {
	case c == '.':
		s, ok := attributeScopes[word]
		if !ok {
			return l.errorf(*t, "unknown identifier: %s", word)
		}
		l.advance(1)
		t.kind, t.attr.scope = tokAttribute, s
		t.attr.name, err = l.attributeName(*t)
		return err
	case c == ':' && unicode.IsLetter(l.peek(1)):
		l.advance(1)
		at := token{line: l.line, col: l.col}
		scoped := word + ":" + l.ident()
		in, ok := intrinsics[scoped]
		if !ok {
			return l.errorf(at, "syntax error: unexpected IDENTIFIER")
		}
		t.kind, t.attr = tokAttribute, attribute{scope: scopeIntrinsic, name: in}
		return nil
	}
	if in, ok := intrinsics[word]; ok {
		t.kind, t.attr = tokAttribute, attribute{scope: scopeIntrinsic, name: in}
		return nil
	}
	t.kind, t.text = tokIdent, word
	return nil
}
