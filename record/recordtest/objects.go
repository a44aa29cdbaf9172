package recordtest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// SentLabel is the label with the time at which the server made an object's state: nanoseconds since 1970.
const SentLabel = "recordtest/sent"

// AppLabel is the label of the pods; LogApp is its value on those that write logs.
const (
	AppLabel = "app"
	LogApp   = "logging"
)

// podsANode is how many pods a node has.
const podsANode = 100

func (p pod) workload() int { return p.index / podsAWorkload }

func (p pod) namespace() string { return "ns-" + strconv.Itoa(p.workload()%50) }

func (p pod) name() string {
	return fmt.Sprintf("app-%d-7c9f8d6b5-%05d-%d", p.workload(), p.index, p.incarnation)
}

func (p pod) uid() string {
	return fmt.Sprintf("00000000-0000-4000-%04d-%012d", p.incarnation, p.index)
}

func (e event) uid() string { return fmt.Sprintf("00000000-0000-4000-eeee-%012d", e.serial) }

// appendPod appends a pod of the size that pods have in a real cluster, most of which a recording does not keep.
func (s *Server) appendPod(b []byte, p pod) []byte {
	logging := p.index < s.c.LogPods
	app, state, phase, ready := "app-"+strconv.Itoa(p.workload()), "", "Running", p.changes%2 == 0
	begun := s.start.UTC().Add(-time.Hour).Format(time.RFC3339)
	id := "containerd://" + strings.Repeat("0", 52) + fmt.Sprintf("%08d%04d", p.index, p.incarnation)
	if logging {
		app, state = LogApp, `{"running":{"startedAt":"`+begun+`"}}`
	} else {
		phase, ready = "Succeeded", false
		state = `{"terminated":{"exitCode":0,"reason":"Completed","startedAt":"` + begun + `","finishedAt":"` + begun +
			`","containerID":"` + id + `"}}`
	}
	node := p.index / podsANode
	ip := fmt.Sprintf("10.%d.%d.%d", node>>8, node&255, p.index%podsANode)
	values := map[string]string{
		"name": p.name(), "namespace": p.namespace(), "uid": p.uid(), "rv": strconv.Itoa(p.rv), "app": app,
		"sent": strconv.FormatInt(p.at.UnixNano(), 10), "begun": begun, "state": state, "phase": phase,
		"ready": strconv.FormatBool(ready), "status": map[bool]string{true: "True", false: "False"}[ready], "id": id,
		"node": fmt.Sprintf("node-%03d", node), "ip": ip, "rs": fmt.Sprintf("app-%d-7c9f8d6b5", p.workload()),
		"rsuid": rsUID(p.workload()), "changes": strconv.Itoa(p.changes),
	}
	for i, part := range podTemplate {
		if i%2 == 0 {
			b = append(b, part...)
		} else {
			b = append(b, values[part]...)
		}
	}
	return b
}

func (s *Server) appendEvent(b []byte, e event) []byte {
	return fmt.Appendf(b, `{"kind":"Event","apiVersion":"v1","metadata":{"name":"%s.%d","namespace":"%s","uid":"%s",`+
		`"resourceVersion":"%d","creationTimestamp":"%s","labels":{"%s":"%d"}},"involvedObject":{"kind":"Pod",`+
		`"namespace":"%s","name":"%s","uid":"%s","fieldPath":"spec.containers{app}"},"reason":"Killing",`+
		`"message":"Stopping container app","type":"Normal","count":1,"source":{"component":"kubelet","host":"node-000"},`+
		`"firstTimestamp":"%[6]s","lastTimestamp":"%[6]s"}`,
		e.about.name(), e.serial, e.about.namespace(), e.uid(), e.rv, e.at.UTC().Format(time.RFC3339), SentLabel,
		e.at.UnixNano(), e.about.namespace(), e.about.name(), e.about.uid())
}

// appendChange appends a watch event and its end of line.
func (s *Server) appendChange(b []byte, c change) []byte {
	b = append(b, `{"type":"`+c.op+`","object":`...)
	if c.event != nil {
		b = s.appendEvent(b, *c.event)
	} else {
		b = s.appendPod(b, c.pod)
	}
	return append(b, "}\n"...)
}

func rsUID(i int) string { return fmt.Sprintf("00000000-0000-4000-aaaa-%012d", i) }

func depUID(i int) string { return fmt.Sprintf("00000000-0000-4000-dddd-%012d", i) }

// appendWorkload appends a Deployment or its ReplicaSet.
func appendWorkload(b []byte, resource string, i int) []byte {
	kind, name, uid, owner := "Deployment", fmt.Sprintf("app-%d", i), depUID(i), ""
	if resource == "replicasets" {
		owner = fmt.Sprintf(`,"ownerReferences":[{"kind":"Deployment","name":%q,"uid":%q,"controller":true}]`, name, uid)
		kind, name, uid = "ReplicaSet", name+"-7c9f8d6b5", rsUID(i)
	}
	return fmt.Appendf(b, `{"kind":%q,"apiVersion":"apps/v1","metadata":{"name":%q,"namespace":"ns-%d","uid":%q,`+
		`"resourceVersion":"900","labels":{"app":"app-%[5]d"}%[6]s},"spec":{"replicas":%[7]d,"selector":{"matchLabels":{"app":`+
		`"app-%[5]d"}},"template":{"metadata":{"labels":{"app":"app-%[5]d"}},"spec":{"containers":[{"name":"app","image":`+
		`"registry.example/shop/cart:v1.2.3"}]}}},"status":{"replicas":%[7]d,"readyReplicas":%[7]d}}`,
		kind, name, i%50, uid, i, owner, podsAWorkload)
}

func appendSlice(b []byte, i int, pods []pod) []byte {
	b = fmt.Appendf(b, `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"app-%d-x7x7x",`+
		`"namespace":"ns-%d","uid":"00000000-0000-4000-bbbb-%012[1]d","resourceVersion":"900","labels":`+
		`{"kubernetes.io/service-name":"app-%[1]d"}},"addressType":"IPv4","endpoints":[`, i, i%50)
	for j, p := range pods {
		if j > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"addresses":["10.0.%d.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},`+
			`"targetRef":{"kind":"Pod","namespace":%q,"name":%q,"uid":%q},"nodeName":"node-%03d"}`,
			p.index>>8&255, p.index&255, p.namespace(), p.name(), p.uid(), p.index/podsANode)
	}
	return append(b, `],"ports":[{"name":"http","port":8080,"protocol":"TCP"}]}`...)
}

func appendNode(b []byte, i int) []byte {
	return fmt.Appendf(b, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"node-%03d","uid":`+
		`"00000000-0000-4000-cccc-%012[1]d","resourceVersion":"900"},"spec":{},"status":{"conditions":[{"type":"Ready",`+
		`"status":"True","reason":"KubeletReady"}]}}`, i)
}

// podTemplate is a pod's JSON: at even places what all pods share, at odd places the names of what they do not.
var podTemplate = strings.Split(strings.Join(strings.Fields(podText), ""), "$")

// podText has no blank in any value.
var podText = `{"kind":"Pod","apiVersion":"v1","metadata":{
"name":"$name$","generateName":"$rs$-","namespace":"$namespace$","uid":"$uid$","resourceVersion":"$rv$","generation":1,
"creationTimestamp":"$begun$","labels":{"app":"$app$","pod-template-hash":"7c9f8d6b5","app.kubernetes.io/name":"cart",
"app.kubernetes.io/part-of":"shop","` + SentLabel + `":"$sent$"},
"annotations":{"kubectl.kubernetes.io/restartedAt":"$begun$","prometheus.io/scrape":"true","prometheus.io/port":"9090",
"checksum/config":"1f0c3a9be1f65e4d5f5d1c7d8f5f7a0b3d2e4c6a8b0c2d4e6f8091a3b5c7d9e1"},
"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"$rs$","uid":"$rsuid$","controller":true,
"blockOwnerDeletion":true}],"managedFields":[` + managedFields + `]},
"spec":{"volumes":[{"name":"config","configMap":{"name":"cart-config","defaultMode":420}},{"name":"kube-api-access-4x9zq",
"projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":
"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}},{"downwardAPI":{"items":[{"path":"namespace","fieldRef":
{"apiVersion":"v1","fieldPath":"metadata.namespace"}}]}}],"defaultMode":420}}],
"containers":[{"name":"app","image":"registry.example/shop/cart:v1.2.3","args":["--listen=:8080","--metrics=:9090"],
"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"},{"name":"metrics","containerPort":9090,"protocol":"TCP"}],
"env":[` + env + `],"resources":{"limits":{"cpu":"1","memory":"512Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},
"volumeMounts":[{"name":"config","mountPath":"/etc/cart"},{"name":"kube-api-access-4x9zq","readOnly":true,"mountPath":
"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":"http","scheme":
"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"readinessProbe":{"httpGet":
{"path":"/readyz","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":5,"successThreshold":1,
"failureThreshold":3},"lifecycle":{"preStop":{"sleep":{"seconds":5}}},"terminationMessagePath":"/dev/termination-log",
"terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always",
"terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"cart","serviceAccount":"cart",
"nodeName":"$node$","securityContext":{"runAsNonRoot":true,"runAsUser":65532},"schedulerName":"default-scheduler",
"tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300},
{"key":"node.kubernetes.io/unreachable","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,
"enableServiceLinks":true,"preemptionPolicy":"PreemptLowerPriority"},
"status":{"observedGeneration":1,"phase":"$phase$","conditions":[
{"type":"PodReadyToStartContainers","status":"True","lastProbeTime":null,"lastTransitionTime":"$begun$"},
{"type":"Initialized","status":"True","lastProbeTime":null,"lastTransitionTime":"$begun$"},
{"type":"Ready","status":"$status$","lastProbeTime":null,"lastTransitionTime":"$begun$"},
{"type":"ContainersReady","status":"$status$","lastProbeTime":null,"lastTransitionTime":"$begun$"},
{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"$begun$"}],
"hostIP":"192.0.2.1","hostIPs":[{"ip":"192.0.2.1"}],"podIP":"$ip$","podIPs":[{"ip":"$ip$"}],"startTime":"$begun$",
"containerStatuses":[{"name":"app","state":$state$,"lastState":{},"ready":$ready$,"restartCount":0,
"image":"registry.example/shop/cart:v1.2.3","imageID":
"registry.example/shop/cart@sha256:1f0c3a9be1f65e4d5f5d1c7d8f5f7a0b3d2e4c6a8b0c2d4e6f8091a3b5c7d9e1",
"containerID":"$id$","started":$ready$}],"qosClass":"Burstable"}}`

var managedFields = func() string {
	var b bytes.Buffer
	for i, manager := range []string{"kube-controller-manager", "kubelet"} {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"manager":%q,"operation":"Update","apiVersion":"v1","time":"$begun$","fieldsType":"FieldsV1",`+
			`"fieldsV1":{"f:metadata":{"f:labels":{".":{}`, manager)
		for j := range 30 {
			fmt.Fprintf(&b, `,"f:field-%d-of-the-spec":{".":{},"f:name":{},"f:value":{}}`, j)
		}
		b.WriteString("}}}}")
	}
	return b.String()
}()

var env = func() string {
	var b bytes.Buffer
	for i := range 15 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"CART_SETTING_%d","value":"what-the-setting-%[1]d-is-set-to"}`, i)
	}
	return b.String()
}()
