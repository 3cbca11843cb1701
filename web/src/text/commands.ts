/** The `shoal` command that does the same as a button, with every word quoted as a shell needs it. */

const SAFE = /^[\w@%+=:,./-]+$/;

export function quoted(word: string): string {
  return SAFE.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

export interface AppName {
  readonly project: string;
  readonly environment: string;
  readonly app: string;
}

export function command(words: readonly (string | number | undefined | false)[]): string {
  return words.filter((word) => word !== undefined && word !== false && word !== "").map((word) => quoted(String(word))).join(" ");
}

/** `shoal VERB… APP -p P -e E OPTIONS` */
export function appCommand(app: AppName, verb: readonly string[], options: readonly (string | number | undefined | false)[] = []): string {
  return command(["shoal", ...verb, app.app, "-p", app.project, "-e", app.environment, ...options]);
}
