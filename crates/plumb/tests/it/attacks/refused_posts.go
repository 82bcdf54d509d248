// Sends POST requests that a server refuses before it has read their bodies, over HTTP/2, and prints the statuses.
//
// Arguments: the file of the certificate authority, then for each request a URL, a bearer token and a size.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

func main() {
	authority, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: true,
	}
	client := &http.Client{Transport: transport}
	for args := os.Args[2:]; len(args) >= 3; args = args[3:] {
		size, err := strconv.Atoi(args[2])
		if err != nil {
			panic(err)
		}
		request, err := http.NewRequest("POST", args[0], bytes.NewReader(make([]byte, size)))
		if err != nil {
			panic(err)
		}
		request.Header.Set("Authorization", "Bearer "+args[1])
		request.Header.Set("Content-Type", "application/json")
		response, err := client.Do(request)
		if err != nil {
			fmt.Println(0, err)
			continue
		}
		_, err = io.Copy(io.Discard, response.Body)
		response.Body.Close()
		fmt.Println(response.StatusCode, response.ProtoMajor, err)
	}
}
