{{- define "shoal.image" -}}
{{- required "image is not set: Shoal has no image of its own on a public registry; build one, push it to your registry and set image=REGISTRY/NAME:TAG" .Values.image -}}
{{- end -}}

{{- define "shoal.labels" -}}
app.kubernetes.io/part-of: shoal
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The parts that run: name, port, arguments, join file, replicas, resources. */}}
{{- define "shoal.parts" -}}
{{- if ne .Release.Namespace "shoal-system" -}}
{{- fail (printf "the namespace of the release is %q: the agents' rights are for shoal-system; use --namespace shoal-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- if not (or .Values.join.existingSecret .Values.join.krane) -}}
{{- fail "join.krane is not set: use --set-file join.krane=FILE with the output of `shoal token create --kind agent --cluster NAME --region REGION`, or join.existingSecret" -}}
{{- end -}}
parts:
- name: shoal-krane
  container: krane
  port: 8070
  replicas: {{ .Values.krane.replicas }}
  file: krane.yaml
  args: [krane, start, --join, /etc/shoal/krane.yaml, --dir, /var/lib/shoal/krane, --host, $(POD_IP), --port, "8070"]
  resources: {{ toJson .Values.krane.resources }}
{{- if and .Values.edge.enabled (or .Values.join.existingSecret .Values.join.edge) }}
- name: shoal-edge
  container: edge
  port: 8071
  replicas: 1
  file: edge.yaml
  args: [navigator, edge, --join, /etc/shoal/edge.yaml, --host, $(POD_IP), --port, "8071"]
  resources: {{ toJson .Values.edge.resources }}
{{- end }}
{{- if and .Values.sharding.enabled (not .Values.namespaces) }}
- name: shoal-shard-manager
  container: shard-manager
  port: 8060
  replicas: {{ .Values.sharding.replicas }}
  file: ""
  args: [shard, manager, --namespace, shoal-system, --worker-image, {{ include "shoal.image" . | quote }}, --host, $(POD_IP), --port, "8060"]
  resources: {{ toJson .Values.sharding.resources }}
{{- end }}
{{- end -}}

{{- define "shoal.env" -}}
{{- $root := .root -}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- {name: SHOAL_HOME, value: /var/lib/shoal}
- {name: HOME, value: /var/lib/shoal}
{{- if eq .part.name "shoal-krane" }}
- {name: SHOAL_KRANE_GATEWAY_IMAGE, value: {{ include "shoal.image" $root | quote }}}
- {name: SHOAL_KRANE_DEPLOYMENT, value: shoal-system/shoal-krane}
- {name: SHOAL_KRANE_BESIDE, value: {{ without .names "shoal-krane" | join "," | quote }}}
- {name: SHOAL_KRANE_OWN_IMAGE, value: {{ include "shoal.image" $root | quote }}}
{{- if $root.Values.namespaces }}
- {name: SHOAL_KRANE_NAMESPACES, value: {{ join "," $root.Values.namespaces | quote }}}
{{- end }}
{{- end }}
{{- if and $root.Values.namespaces (eq .part.name "shoal-edge") }}
- {name: SHOAL_EDGE_NAMESPACES__INCLUDE, value: {{ join "," $root.Values.namespaces | quote }}}
{{- end }}
{{- with $root.Values.proxy.httpsProxy }}
- {name: HTTPS_PROXY, value: {{ . | quote }}}
- {name: NO_PROXY, value: {{ list "$(KUBERNETES_SERVICE_HOST)" ".svc" ".cluster.local" "localhost" "127.0.0.1" $root.Values.proxy.noProxy | compact | join "," | quote }}}
{{- end }}
{{- end -}}
