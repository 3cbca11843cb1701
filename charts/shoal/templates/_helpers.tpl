{{- define "shoal.image" -}}
{{- required "image is not set: Shoal has no image of its own on a public registry; build one, push it to your registry and set image=REGISTRY/NAME:TAG" .Values.image -}}
{{- end -}}

{{- define "shoal.selector" -}}
app.kubernetes.io/name: shoal
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "shoal.labels" -}}
{{ include "shoal.selector" . }}
app.kubernetes.io/part-of: shoal
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "shoal.urls" -}}
{{- $service := printf "https://%s.%s.svc" .root.Release.Name .root.Release.Namespace -}}
{{- $urls := .given | default (list (printf "%s:%d" $service (int .port))) -}}
{{- range $urls }}
- --advertise-url
- {{ . | quote }}
{{- end -}}
{{- range list .root.Release.Name (printf "%s.%s.svc" .root.Release.Name .root.Release.Namespace) (printf "%s.%s.svc.cluster.local" .root.Release.Name .root.Release.Namespace) }}
- --tls-san
- {{ . | quote }}
{{- end -}}
{{- end -}}

{{- define "shoal.controlArgs" -}}
- control
- start
- --host
- $(POD_IP)
- --port
- "7400"
{{- if .Values.control.existingCredentials }}
- --credentials
- /etc/shoal/credentials
{{- end }}
{{- include "shoal.urls" (dict "root" . "given" .Values.advertiseUrls "port" 7400) }}
{{- end -}}

{{- define "shoal.credentialsVolume" -}}
{{- with .Values.control.existingCredentials -}}
- name: credentials
  secret:
    secretName: {{ . }}
    defaultMode: 0440
    items: [{key: credentials, path: credentials}]
{{- end }}
{{- end -}}

{{- define "shoal.pod" -}}
serviceAccountName: {{ .Release.Name }}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 30
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "shoal.container" -}}
{{- $root := .root -}}
image: {{ include "shoal.image" $root | quote }}
imagePullPolicy: {{ $root.Values.imagePullPolicy }}
ports:
  - {name: {{ .name }}, containerPort: {{ .port }}}
startupProbe:
  httpGet: {path: /livez, port: {{ .name }}, scheme: HTTPS}
  periodSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: {{ .name }}, scheme: HTTPS}
  periodSeconds: 10
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: {{ .name }}, scheme: HTTPS}
  periodSeconds: 2
resources: {{- toYaml .resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  - {name: state, mountPath: /var/lib/shoal}
  - {name: tmp, mountPath: /tmp}
  {{- if and $root.Values.control.existingCredentials (eq .name "control") }}
  - {name: credentials, mountPath: /etc/shoal, readOnly: true}
  {{- end }}
env:
  - name: POD_IP
    valueFrom: {fieldRef: {fieldPath: status.podIP}}
  - {name: SHOAL_HOME, value: /var/lib/shoal/home}
  - {name: HOME, value: /var/lib/shoal/home}
  {{- if $root.Values.database.existingSecret }}
  - name: {{ .database }}
    valueFrom: {secretKeyRef: {name: {{ $root.Values.database.existingSecret }}, key: {{ .name }}}}
  {{- end }}
  {{- if and $root.Values.masterKey (eq .name "control") }}
  - {name: SHOAL_CONTROL_MASTER_KEY, value: {{ $root.Values.masterKey | quote }}}
  {{- end }}
  {{- with $root.Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}
