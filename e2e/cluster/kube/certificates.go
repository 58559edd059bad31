package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// lifetime of every certificate: longer than any cluster of this kind is meant to live.
const lifetime = 90 * 24 * time.Hour

// authority signs every certificate of one cluster. Its key never leaves this process: a new cluster
// gets a new authority.
type authority struct {
	directory   string
	key         crypto.Signer
	certificate *x509.Certificate
	pem         []byte
}

// identity is a user of the API server: the common name is the user, the organisation the group.
type identity struct {
	file, user, group string
}

func newCertificatesCommand() *cobra.Command {
	var directory, server string
	var serverNames, nodes []string
	command := &cobra.Command{
		Use:   "certificates",
		Short: "Write the keys, certificates and kubeconfig files of a cluster",
		RunE: func(*cobra.Command, []string) error {
			return writeCertificates(directory, server, serverNames, nodes)
		},
	}
	command.Flags().StringVar(&directory, "directory", "", "where to write them")
	command.Flags().StringVar(&server, "server", "", "address of the API server, for the kubeconfig files")
	command.Flags().StringSliceVar(&serverNames, "server-names", nil, "names and addresses in the API server's certificate")
	command.Flags().StringSliceVar(&nodes, "nodes", nil, "nodes, as NAME=ADDRESS")
	return command
}

func writeCertificates(directory, server string, serverNames, nodes []string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	ca, err := newAuthority(directory)
	if err != nil {
		return err
	}
	if err := writeServiceAccountKey(directory); err != nil {
		return err
	}
	if _, _, err := ca.issue("apiserver", pkix.Name{CommonName: "kube-apiserver"}, serverNames); err != nil {
		return err
	}
	// The API server as a client of the kubelets; the group gives it the right to use them.
	kubeletClient := pkix.Name{CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}}
	if _, _, err := ca.issue("apiserver-kubelet-client", kubeletClient, nil); err != nil {
		return err
	}
	identities := []identity{
		{"admin", "kubernetes-admin", "system:masters"},
		{"controller-manager", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"proxy", "system:kube-proxy", ""},
	}
	for _, node := range nodes {
		name, address, found := strings.Cut(node, "=")
		if !found {
			return fmt.Errorf("node %q is not NAME=ADDRESS", node)
		}
		identities = append(identities, identity{name, "system:node:" + name, "system:nodes"})
		if _, _, err := ca.issue(name+"-serving", pkix.Name{CommonName: "system:node:" + name, Organization: []string{"system:nodes"}}, []string{name, address}); err != nil {
			return err
		}
	}
	for _, identity := range identities {
		if err := ca.writeKubeconfig(identity, server); err != nil {
			return err
		}
	}
	return nil
}

func newAuthority(directory string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "bellwether-e2e"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	ca := &authority{directory: directory, key: key, certificate: certificate, pem: encode("CERTIFICATE", der)}
	return ca, os.WriteFile(filepath.Join(directory, "ca.crt"), ca.pem, 0o644)
}

// issue writes NAME.crt and NAME.key, good for a server with these names and for a client.
func (ca *authority) issue(name string, subject pkix.Name, names []string) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    ca.certificate.NotBefore,
		NotAfter:     ca.certificate.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		if address := net.ParseIP(name); address != nil {
			template.IPAddresses = append(template.IPAddresses, address)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if len(names) > 0 {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.certificate, private.Public(), ca.key)
	if err != nil {
		return nil, nil, err
	}
	privateDer, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	certificate, key = encode("CERTIFICATE", der), encode("PRIVATE KEY", privateDer)
	if err := os.WriteFile(filepath.Join(ca.directory, name+".crt"), certificate, 0o644); err != nil {
		return nil, nil, err
	}
	return certificate, key, os.WriteFile(filepath.Join(ca.directory, name+".key"), key, 0o600)
}

// writeKubeconfig writes NAME.conf with everything inside it, so that the file can be copied.
func (ca *authority) writeKubeconfig(who identity, server string) error {
	subject := pkix.Name{CommonName: who.user}
	if who.group != "" {
		subject.Organization = []string{who.group}
	}
	certificate, key, err := ca.issue(who.file, subject, nil)
	if err != nil {
		return err
	}
	const name = "bellwether-e2e"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca.pem}
	config.AuthInfos[who.user] = &clientcmdapi.AuthInfo{ClientCertificateData: certificate, ClientKeyData: key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: who.user}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, filepath.Join(ca.directory, who.file+".conf"))
}

// writeServiceAccountKey writes the key pair that signs the tokens of pods. It is RSA because that is
// what clusters have, and what token checkers are used to.
func writeServiceAccountKey(directory string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(directory, "service-account.key"), encode("PRIVATE KEY", private), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "service-account.pub"), encode("PUBLIC KEY", public), 0o644)
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
