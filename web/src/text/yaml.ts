/** Objects as YAML. The library is loaded when the first text is needed. */

export async function yamlOf(value: unknown): Promise<string> {
  const { stringify } = await import("yaml");
  return stringify(value, { lineWidth: 110 });
}
