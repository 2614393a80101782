package kube

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A kubeconfig has credentials in many places, and what is said of it is read by whoever
// may see a run. So errors name the part that is wrong and never its text.
var (
	errNoKubeconfig = errors.New("it is no kubeconfig")
	errUnusable     = errors.New("the kubeconfig's parts do not go together: kubectl says more when it uses it")
)

// fromKubeconfig reads a kubeconfig that somebody of a workspace wrote. It lives in
// memory. What would read the coordinator's files or run a program there is refused.
func fromKubeconfig(doc []byte, context string) (*rest.Config, string, error) {
	raw, err := clientcmd.Load(doc)
	if err != nil {
		return nil, "", errNoKubeconfig
	}
	if err := checkForeign(raw); err != nil {
		return nil, "", err
	}
	if err := checkParts(raw, context); err != nil {
		return nil, "", err
	}
	c := clientcmd.NewNonInteractiveClientConfig(*raw, context, &clientcmd.ConfigOverrides{}, nil)
	config, err := c.ClientConfig()
	if err != nil {
		return nil, "", errUnusable
	}
	namespace, _, err := c.Namespace()
	if err != nil {
		return nil, "", errUnusable
	}
	return config, namespace, nil
}

// fromContext reads the coordinator's own kubeconfig, which may name files and programs.
func fromContext(context string) (*rest.Config, string, error) {
	c := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{CurrentContext: context})
	raw, err := c.RawConfig()
	if err != nil {
		return nil, "", errors.New("the coordinator's kubeconfig cannot be read")
	}
	if err := checkParts(&raw, context); err != nil {
		return nil, "", err
	}
	config, err := c.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := c.Namespace()
	return config, namespace, err
}

// checkForeign refuses what has no place in a kubeconfig that comes from a secret.
func checkForeign(c *clientcmdapi.Config) error {
	refuse := func(what, instead string) error {
		return fmt.Errorf("%s is not taken from a secret: %s", what, instead)
	}
	const flatten = "embed the data (kubectl config view --flatten --raw)"
	for _, u := range c.AuthInfos {
		switch {
		case u.Exec != nil:
			return refuse("the exec plugin of a user", "it would run a program on the coordinator; use a token")
		case u.AuthProvider != nil:
			return refuse("the auth provider of a user", "use a token")
		case u.TokenFile != "", u.ClientCertificate != "", u.ClientKey != "":
			return refuse("a file path of a user", flatten)
		}
	}
	for _, cl := range c.Clusters {
		if cl.CertificateAuthority != "" {
			return refuse("a file path of a cluster", flatten)
		}
	}
	return nil
}

// checkParts says what is wrong with the parts of a kubeconfig that a context uses; with no
// context named, the current one.
func checkParts(c *clientcmdapi.Config, context string) error {
	if clientcmdapi.IsConfigEmpty(c) {
		return errors.New("the kubeconfig is empty")
	}
	name := cmp.Or(context, c.CurrentContext)
	used := c.Contexts[name]
	switch {
	case name == "":
		return errors.New("the kubeconfig has no current-context: set one, or name one in the runtime's context")
	case used == nil && context != "":
		return fmt.Errorf("the kubeconfig has no context %q, which the runtime names", context)
	case used == nil:
		return errors.New("the kubeconfig's current-context is none of its contexts")
	}
	cluster, user := c.Clusters[used.Cluster], c.AuthInfos[used.AuthInfo]
	switch {
	case cluster == nil:
		return errors.New("the kubeconfig lacks the cluster that its context names")
	case user == nil && used.AuthInfo != "":
		return errors.New("the kubeconfig lacks the user that its context names")
	}
	if err := checkCluster(cluster); err != nil || user == nil {
		return err
	}
	return checkUser(user)
}

func checkCluster(c *clientcmdapi.Cluster) error {
	u, err := url.Parse(c.Server)
	switch {
	case c.Server == "":
		return errors.New("the cluster's server is missing from the kubeconfig")
	case err != nil, u.Scheme != "https" && u.Scheme != "http", u.Host == "":
		return errors.New("the cluster's server in the kubeconfig is no URL with https:// and a host")
	case u.User != nil:
		return errors.New("the cluster's server in the kubeconfig carries a user name or password: give its user a token or a certificate")
	}
	if c.ProxyURL != "" {
		if u, err := url.Parse(c.ProxyURL); err != nil || u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "socks5" || u.Host == "" {
			return errors.New("the cluster's proxy-url in the kubeconfig is no URL with http://, https:// or socks5:// and a host")
		}
	}
	if len(c.CertificateAuthorityData) == 0 {
		return nil
	}
	if c.InsecureSkipTLSVerify {
		return errors.New("the cluster in the kubeconfig has certificate-authority-data and insecure-skip-tls-verify: leave one out")
	}
	if !x509.NewCertPool().AppendCertsFromPEM(c.CertificateAuthorityData) {
		return errors.New("the cluster's certificate-authority-data in the kubeconfig has no certificate")
	}
	return nil
}

func checkUser(u *clientcmdapi.AuthInfo) error {
	basic := u.Username != "" || u.Password != ""
	certificate := len(u.ClientCertificateData) > 0 || len(u.ClientKeyData) > 0
	switch {
	case u.Token != "" && basic:
		return errors.New("the user in the kubeconfig has a token and a user name or password: leave one out")
	case certificate && u.ClientCertificate == "" && u.ClientKey == "":
		if _, err := tls.X509KeyPair(u.ClientCertificateData, u.ClientKeyData); err != nil {
			return errors.New("the user's client-certificate-data and client-key-data in the kubeconfig are no certificate and its key")
		}
	}
	return nil
}
