package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/rolltrace/rolltrace/roll"
)

// api asks the API server for JSON as it is: an object is decoded once, into what a recording may hold.
type api struct{ c rest.Interface }

func newAPI(config *rest.Config, clock *serverClock) (*api, error) {
	c := rest.CopyConfig(config)
	c.APIPath = "/api"
	c.GroupVersion = &schema.GroupVersion{Version: "v1"}
	c.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	c.ContentType, c.AcceptContentTypes = "application/json", "application/json"
	c.QPS = -1 // the API server's own priority and fairness decides
	c.WarningHandler = rest.NoWarnings{}
	c.Wrap(func(rt http.RoundTripper) http.RoundTripper { return &clockTransport{rt, clock} })
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return &api{client}, nil
}

// path returns the path of a resource, in a namespace unless that is empty or the resource has none.
func path(resource, namespace string) string {
	p := "/api/v1"
	for _, r := range roll.Resources {
		if r.Resource == resource && r.Group != "" {
			p = "/apis/" + r.Group + "/" + r.Version
		}
	}
	if namespace != "" && resource != roll.ResourceNodes {
		p += "/namespaces/" + namespace
	}
	return p + "/" + resource
}

// listPage is how many objects a request asks for.
const listPage = 500

// list returns all objects of a resource and the resourceVersion at which a watch goes on.
func (a *api) list(ctx context.Context, resource, namespace string) (items []*roll.Object, rv string, err error) {
	limit, token := listPage, ""
	for {
		req := a.c.Get().AbsPath(path(resource, namespace))
		if limit > 0 {
			req = req.Param("limit", strconv.Itoa(limit))
		}
		if token != "" {
			req = req.Param("continue", token)
		}
		raw, err := req.Do(ctx).Raw()
		if err != nil && token != "" && isExpired(err) {
			items, limit, token = nil, 0, "" // the pages lasted too long: all at once
			continue
		}
		if err != nil {
			return nil, "", err
		}
		var page struct {
			Metadata struct {
				ResourceVersion string `json:"resourceVersion"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, "", fmt.Errorf("the answer is no list: %w", jsonError(err))
		}
		if page.Metadata.ResourceVersion == "" {
			return nil, "", errors.New("the answer is no list: it has no resourceVersion")
		}
		for _, item := range page.Items {
			o, err := prune(resource, item)
			if err != nil {
				return nil, "", err
			}
			items = append(items, o)
		}
		if token = page.Metadata.Continue; token == "" {
			return items, page.Metadata.ResourceVersion, nil
		}
	}
}

// watch opens a watch after rv. The server ends it after 5 to 10 minutes, as client-go's own watches do.
func (a *api) watch(ctx context.Context, resource, namespace, rv string) (io.ReadCloser, error) {
	return a.c.Get().AbsPath(path(resource, namespace)).
		Param("watch", "true").Param("allowWatchBookmarks", "true").Param("resourceVersion", rv).
		Param("timeoutSeconds", strconv.Itoa(300+rand.IntN(300))).
		MaxRetries(0).Stream(ctx)
}

// pod returns one pod.
func (a *api) pod(ctx context.Context, namespace, name string) (*roll.Object, error) {
	raw, err := a.c.Get().AbsPath(path(roll.ResourcePods, namespace), name).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return nil, err
	}
	return prune(roll.ResourcePods, raw)
}

// log opens a container's log with timestamps. since, truncated to the second by the API, may be zero.
func (a *api) log(
	ctx context.Context, namespace, pod, container string, since time.Time, follow, previous bool,
) (io.ReadCloser, error) {
	req := a.c.Get().AbsPath(path(roll.ResourcePods, namespace), pod, "log").
		Param("container", container).Param("timestamps", "true").
		Param("follow", strconv.FormatBool(follow)).Param("previous", strconv.FormatBool(previous))
	if !since.IsZero() {
		req = req.Param("sinceTime", since.UTC().Truncate(time.Second).Format(time.RFC3339))
	}
	return req.MaxRetries(0).Stream(ctx)
}

// clusterUID returns the UID of the kube-system namespace, empty when it cannot be read.
func (a *api) clusterUID(ctx context.Context) string {
	raw, err := a.c.Get().AbsPath("/api/v1/namespaces/kube-system").MaxRetries(0).Do(ctx).Raw()
	var ns struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err != nil || json.Unmarshal(raw, &ns) != nil {
		return ""
	}
	return ns.Metadata.UID
}

// mayI asks the API server itself, as kubectl auth can-i does; resource may be RESOURCE/SUBRESOURCE of the core group.
func (a *api) mayI(ctx context.Context, verb, resource, namespace string) (bool, error) {
	resource, subresource, _ := strings.Cut(resource, "/")
	body, err := json.Marshal(map[string]any{
		"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
		"spec": map[string]any{"resourceAttributes": map[string]string{
			"namespace": namespace, "verb": verb, "resource": resource, "subresource": subresource,
		}},
	})
	if err != nil {
		return false, err
	}
	raw, err := a.c.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
		SetHeader("Content-Type", "application/json").Body(body).MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return false, err
	}
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	if err := json.Unmarshal(raw, &review); err != nil {
		return false, jsonError(err)
	}
	return review.Status.Allowed, nil
}

// probe makes a cheap request: its answer's Date is what counts, whatever it says.
func (a *api) probe(ctx context.Context) {
	a.c.Get().AbsPath("/version").MaxRetries(0).Do(ctx)
}

// isExpired reports an error that only a new list heals.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// backoff is a growing delay with jitter.
type backoff struct {
	min, max time.Duration
	n        int
}

func (b *backoff) reset() { b.n = 0 }

// next returns the next delay: from half of it to all of it.
func (b *backoff) next() time.Duration {
	d := b.max
	if b.n < 16 {
		d = min(b.max, b.min<<b.n)
	}
	b.n++
	return d/2 + rand.N(d/2+1)
}

// sleep waits for d or for the end of ctx; it reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
