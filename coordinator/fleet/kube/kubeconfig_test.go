package kube

import (
	"context"
	"encoding/base64"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/everdict/everdict/coordinator/fleet"
	"github.com/everdict/everdict/protocol"
)

// A kubeconfig of a workspace runs no program and reads no file on the coordinator.
func TestKubeconfigOfAWorkspace(t *testing.T) {
	t.Parallel()
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u, namespace: runs}}]\n"
	const cluster = "clusters: [{name: k, cluster: {server: 'https://k:6443'}}]\n"
	for name, c := range map[string]struct{ doc, refused string }{
		"token":            {head + cluster + "users: [{name: u, user: {token: t}}]\n", ""},
		"exec":             {head + cluster + "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, interactiveMode: Never}}}]\n", "exec plugin"},
		"provider":         {head + cluster + "users: [{name: u, user: {auth-provider: {name: gcp}}}]\n", "auth provider"},
		"token file":       {head + cluster + "users: [{name: u, user: {tokenFile: /etc/shadow}}]\n", "file path"},
		"certificate file": {head + cluster + "users: [{name: u, user: {client-certificate: /x, client-key: /y}}]\n", "file path"},
		"authority file":   {head + "clusters: [{name: k, cluster: {server: 'https://k:6443', certificate-authority: /x}}]\nusers: [{name: u, user: {token: t}}]\n", "file path"},
		"nonsense":         {"a secret, and no kubeconfig: [", "no kubeconfig"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, namespace, err := fromKubeconfig([]byte(c.doc), "")
			if c.refused == "" {
				if err != nil || config.Host != "https://k:6443" || config.BearerToken != "t" || namespace != "runs" {
					t.Errorf("%+v, %q, %v; want it taken", config, namespace, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "a secret, and") {
				t.Errorf("%v, want %q and nothing of the content", err, c.refused)
			}
		})
	}
}

// oneSecret is every secret, whatever its name.
type oneSecret string

func (s oneSecret) Secret(context.Context, string, string) (string, error) { return string(s), nil }

// TestP12_NoErrorQuotesAKubeconfig: a password in any place of a kubeconfig that cannot be
// used is in no error, which whoever may see a run reads. The error says which part is wrong.
func TestP12_NoErrorQuotesAKubeconfig(t *testing.T) {
	t.Parallel()
	const password = "hunter2"
	encoded := base64.StdEncoding.EncodeToString([]byte(password))
	doc := func(cluster, user string) string {
		return "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
			"clusters: [{name: k, cluster: {" + cluster + "}}]\nusers: [{name: u, user: {" + user + "}}]\n"
	}
	const server, token = "server: 'https://k:6443'", "token: hunter2"
	for name, c := range map[string]struct{ doc, says string }{
		"empty":                     {"", "the kubeconfig is empty"},
		"only its head":             {"apiVersion: v1\nkind: Config\n", "the kubeconfig is empty"},
		"a word":                    {password, "it is no kubeconfig"},
		"broken":                    {"apiVersion: v1\nkind: Config\nusers: [{name: hunter2", "it is no kubeconfig"},
		"another kind":              {"apiVersion: v1\nkind: hunter2\n", "it is no kubeconfig"},
		"of another form":           {"apiVersion: v1\nkind: Config\nusers: {hunter2: hunter2}\n", "it is no kubeconfig"},
		"no current context":        {strings.Replace(doc(server, token), "current-context: c\n", "", 1), "no current-context"},
		"a context of another name": {strings.Replace(doc(server, token), "current-context: c\n", "current-context: hunter2\n", 1), "current-context is none"},
		"no cluster":                {strings.Replace(doc(server, token), "cluster: k,", "cluster: hunter2,", 1), "lacks the cluster"},
		"no user":                   {strings.Replace(doc(server, token), "user: u}", "user: hunter2}", 1), "lacks the user"},
		"no server":                 {doc("tls-server-name: hunter2", token), "server is missing"},
		"server":                    {doc("server: 'ht!tps://me:hunter2@k:6443'", token), "server in the kubeconfig is no URL"},
		"a server's port":           {doc("server: 'https://k:hunter2'", token), "server in the kubeconfig is no URL"},
		"a server without a scheme": {doc("server: 'hunter2'", token), "server in the kubeconfig is no URL"},
		"a server's user":           {doc("server: 'https://me:hunter2@k:6443'", token), "carries a user name or password"},
		"proxy":                     {doc(server+", proxy-url: 'ht!tp://me:hunter2@x:y'", token), "proxy-url in the kubeconfig is no URL"},
		"a proxy's port":            {doc(server+", proxy-url: 'http://me:hunter2@x:y'", token), "proxy-url in the kubeconfig is no URL"},
		"a proxy's scheme":          {doc(server+", proxy-url: 'ftp://me:hunter2@x:1'", token), "proxy-url in the kubeconfig is no URL"},
		"authority":                 {doc(server+", certificate-authority-data: "+encoded, token), "certificate-authority-data"},
		"authority in clear":        {doc(server+", certificate-authority-data: hunter2!", token), "it is no kubeconfig"},
		"authority and none":        {doc(server+", insecure-skip-tls-verify: true, certificate-authority-data: "+encoded, token), "insecure-skip-tls-verify"},
		"certificate":               {doc(server, "client-certificate-data: "+encoded+", client-key-data: "+encoded), "client-certificate-data"},
		"certificate without a key": {doc(server, "client-certificate-data: "+encoded), "client-certificate-data"},
		"a key alone":               {doc(server, "client-key-data: "+encoded), "client-key-data"},
		"token and password":        {doc(server, token+", username: me, password: hunter2"), "has a token and"},
		"groups without a user":     {doc(server, token+", as-groups: [hunter2]"), "do not go together"},
		"a file of a user":          {strings.ReplaceAll(doc(server, "tokenFile: /hunter2"), ": u", ": hunter2"), "a file path of a user"},
		"a file of a cluster":       {strings.ReplaceAll(doc(server+", certificate-authority: /hunter2", token), ": k", ": hunter2"), "a file path of a cluster"},
		"exec":                      {doc(server, "exec: {apiVersion: client.authentication.k8s.io/v1, command: hunter2, interactiveMode: Never}"), "exec plugin"},
		"auth provider":             {doc(server, "auth-provider: {name: hunter2}"), "auth provider"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := New(Config{Secrets: oneSecret(c.doc)}).Open(t.Context(), fleet.Target{Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r", KubeconfigSecret: "config"}})
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "kubeconfigSecret config") {
				t.Fatalf("%v, want it to name the secret and say %q", err, c.says)
			}
			for _, hidden := range []string{password, encoded, "KUBERNETES_MASTER"} {
				if strings.Contains(err.Error(), hidden) {
					t.Errorf("%v has %s", err, hidden)
				}
			}
		})
	}
}

// TestP12_AProxyThatIsNotThere: what a client says of the way to a cluster has no password
// of it either.
func TestP12_AProxyThatIsNotThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	for _, scheme := range []string{"http", "https", "socks5"} {
		doc := "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n" +
			"clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1', proxy-url: '" + scheme + "://me:hunter2@" + address + "'}}]\nusers: [{name: u, user: {token: hunter2}}]\n"
		p, err := New(Config{Secrets: oneSecret(doc)}).Open(t.Context(), fleet.Target{Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r", KubeconfigSecret: "config"}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := p.Probe(ctx); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want an error without the password", scheme, err)
		}
	}
}

// TestAContextThatIsNotThere: a context is one of the coordinator's own kubeconfig, never
// the account of the Pod that it runs in.
func TestAContextThatIsNotThere(t *testing.T) {
	t.Setenv("KUBECONFIG", "/dev/null")
	_, err := New(Config{}).Open(t.Context(), fleet.Target{Spec: &protocol.RuntimeSpec{Kind: protocol.RuntimeK8s, ID: "r", Context: "elsewhere"}})
	if err == nil || !strings.Contains(err.Error(), "context elsewhere: the kubeconfig is empty") {
		t.Errorf("%v, want it refused", err)
	}
}
